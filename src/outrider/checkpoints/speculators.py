"""The format of vllm-project/speculators: EAGLE-3 heads that vLLM loads by the folder's name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.eagle import LAYER_IDS, NORM_FLAGS, as_layers
from outrider.checkpoints.files import WEIGHTS, read_weights, write_json, write_tensors
from outrider.checkpoints.llama import or_default, read_layers, write_layers
from outrider.checkpoints.tensors import without_needless_maps
from outrider.errors import LoadError, OptionError
from outrider.heads.config import EagleConfig

KEY = "speculators_model_type"
"""The key of config.json that tells this format; its value is the kind of speculator."""
_VERSION = "0.5.0"
_SPECULATIVE_TOKENS = 5
_KNOWN = frozenset(
    {KEY, "speculators_config", "speculators_version", "transformer_layer_config", LAYER_IDS}
    | {"draft_vocab_size", "target_hidden_size", "embed_requires_grad", *NORM_FLAGS}
    # What Transformers and the trainer leave there: nothing of it changes what the head computes.
    | {"architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "model_type"}
    | {"tie_word_embeddings", "return_dict", "use_cache", "has_no_defaults_at_init", "id2label"}
    | {"label2id", "_name_or_path", "enable_sp_ulysses", "max_anchors", "num_speculative_tokens"}
)


def read_speculators(folder: Path, values: Mapping[str, Any]) -> Checkpoint:
    """Read a folder in this format; raises LoadError, OptionError for its configuration."""
    if values[KEY] != "eagle3":
        raise LoadError(
            f"cannot load {folder}: a {values[KEY]} speculator is not supported, only eagle3 is"
        )
    for key, value in values.items():
        if key not in _KNOWN and value:
            raise LoadError(f"cannot load {folder}: config.json sets {key}, which is unknown")
    inner = values.get("transformer_layer_config")
    if not isinstance(inner, dict):
        raise LoadError(f"cannot load {folder}: config.json lacks transformer_layer_config")
    if inner.get("model_type", "llama") != "llama":
        raise LoadError(f"cannot load {folder}: {inner['model_type']} layers are not supported")
    tensors = read_weights(folder)
    fields = read_layers(folder, inner)
    ids = values.get(LAYER_IDS)
    fields |= {
        "version": 3,
        "target_hidden_size": or_default(values, "target_hidden_size", fields["hidden_size"]),
        "draft_vocab_size": or_default(values, "draft_vocab_size", fields["vocab_size"]),
        "feature_layers": None if ids is None else as_layers(folder, ids),
        "owns_embeddings": "embed_tokens.weight" in tensors,
        "owns_head": True,
    } | {flag: or_default(values, flag, False) for flag in NORM_FLAGS}
    config = EagleConfig(**fields)
    kept = without_needless_maps(tensors, config.vocab_size, config.draft_vocab_size)
    return Checkpoint(config=config, tensors=kept, format="speculators", target=_verifier(values))


def _verifier(values: Mapping[str, Any]) -> str | None:
    found: Any = values
    for key in ("speculators_config", "verifier", "name_or_path"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) and found else None


def write_speculators(
    checkpoint: Checkpoint, folder: Path, target_architectures: list[str]
) -> None:
    """Write a head in this format; raises OptionError for what the format has no word for."""
    config = checkpoint.config
    if not isinstance(config, EagleConfig) or config.version != 3:
        raise OptionError(
            f"{checkpoint.title} heads cannot be written as speculators, which has EAGLE-3 only"
        )
    if not config.owns_head:
        raise OptionError(
            "this head cannot be written as speculators: "
            "it has no language-model head of its own; use native"
        )
    if checkpoint.target is None:
        raise OptionError("speculators names the target of a head: say which with --target")
    dtype = str(checkpoint.tensors["fc.weight"].dtype).removeprefix("torch.")
    described = _describe(config, checkpoint.target, target_architectures)
    write_json(folder, described | {"dtype": dtype})
    write_tensors(folder / WEIGHTS, checkpoint.tensors)


def _describe(config: EagleConfig, target: str, architectures: list[str]) -> dict[str, Any]:
    method = {
        "proposal_type": "greedy",
        "speculative_tokens": _SPECULATIVE_TOKENS,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    layers = write_layers(config) | {
        "rope_parameters": dict(config.rope_parameters),
        "tie_word_embeddings": False,
    }
    is_same = config.target_hidden_size == config.hidden_size
    ids = config.feature_layers
    return {
        "architectures": ["Eagle3Speculator"],
        KEY: "eagle3",
        "speculators_version": _VERSION,
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [method],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": target, "architectures": architectures},
        },
        "transformer_layer_config": layers,
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": None if is_same else config.target_hidden_size,
        LAYER_IDS: None if ids is None else list(ids),
        "embed_requires_grad": False,
        "tie_word_embeddings": False,
    } | {flag: getattr(config, flag) for flag in NORM_FLAGS}
