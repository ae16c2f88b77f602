"""What a trained drafter is, and whether it fits a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.checkpoints.base import Format, HeadConfig, Kind
from outrider.checkpoints.fit import check_fit, require_own_target, resolve
from outrider.checkpoints.read import load_head
from outrider.errors import OutriderError
from outrider.heads.config import DraftConfig, EagleConfig, MedusaConfig
from outrider.targets.base import NORMED

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig


@dataclass(frozen=True, slots=True)
class HeadReport:
    """A trained head, or a draft model that shares the target's ends, read off its files.

    `heads` counts Medusa's; `layers` are the decoder layers of EAGLE or a draft model, or the
    residual blocks of each Medusa head. `feature_layers` are the hidden states of the target that
    are read (none by a draft model), None if the target's depth should decide and cannot.
    """

    spec: str
    title: str
    format: Format
    heads: int | None
    layers: int
    parameters: int
    dtype: str
    weight_bytes: int
    kv_bytes_per_token: int | None
    vocabulary: int
    draft_vocabulary: int
    feature_layers: tuple[int, ...] | None
    trained_for: str | None
    changes_target: bool
    problem: str | None
    """Why it does not fit the target."""


def inspect_head(
    spec: str, kind: Kind | None, target: str, target_config: PreTrainedConfig
) -> HeadReport:
    """Report on a trained head beside a target; raises LoadError for one that cannot be read."""
    checkpoint = load_head(spec, kind)
    config, problem = checkpoint.config, None
    try:
        check_fit(config, target_config, spec)
        require_own_target(checkpoint, target, spec)
        if isinstance(config, EagleConfig):
            config = resolve(config, target_config, spec)
    except OutriderError as error:
        problem = str(error)
    floating = [one for one in checkpoint.tensors.values() if one.dtype.is_floating_point]
    return HeadReport(
        spec=spec,
        title=checkpoint.title,
        format=checkpoint.format,
        layers=config.num_layers,
        parameters=sum(one.numel() for one in floating),
        dtype=" and ".join(sorted({str(one.dtype).removeprefix("torch.") for one in floating})),
        weight_bytes=sum(one.nbytes for one in checkpoint.tensors.values()),
        vocabulary=config.vocab_size,
        trained_for=checkpoint.target,
        changes_target=checkpoint.changes_target,
        problem=problem,
        **_of_kind(config, floating[0].dtype),
    )


def _of_kind(config: HeadConfig, dtype: torch.dtype) -> dict[str, Any]:
    """Return what the kinds differ in."""
    if isinstance(config, MedusaConfig):
        return {
            "heads": config.num_heads,
            "kv_bytes_per_token": 0,
            "draft_vocabulary": config.vocab_size,
            "feature_layers": (NORMED,),
        }
    if isinstance(config, DraftConfig):
        return {
            "heads": None,
            "kv_bytes_per_token": _draft_cache_bytes(config, dtype),
            "draft_vocabulary": config.draft_vocab_size,
            "feature_layers": (),
        }
    keys = config.num_key_value_heads * config.head_dim
    return {
        "heads": None,
        "kv_bytes_per_token": 2 * config.num_layers * keys * dtype.itemsize,
        "draft_vocabulary": config.draft_vocab_size,
        "feature_layers": config.feature_layers,
    }


def _draft_cache_bytes(config: DraftConfig, dtype: torch.dtype) -> int | None:
    from outrider.heads.draft import transformers_config
    from outrider.targets.skeleton import build_skeleton, kv_bytes_per_token

    model = build_skeleton(transformers_config(config), "it", trust_remote_code=False)
    return None if model is None else kv_bytes_per_token(model, dtype)
