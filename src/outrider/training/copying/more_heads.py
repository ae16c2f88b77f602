"""A drafter with more attention heads than before: it says the same until they are trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from outrider.checkpoints.base import Checkpoint
from outrider.errors import OptionError
from outrider.heads.config import DraftConfig, EagleConfig
from outrider.heads.draft import own_shapes, transformers_config

_SPREAD = 0.02
ROWS, COLUMNS = ("q_proj", "k_proj", "v_proj"), "o_proj"
"""The projections of attention: of some a head has rows, of one columns."""


@dataclass(frozen=True, slots=True)
class Heads:
    """How many attention heads a layer has, and how large they are."""

    queries: int
    keys: int
    size: int

    @classmethod
    def of(cls, config: DraftConfig | EagleConfig) -> Heads:
        """Return the heads of a drafter's layers."""
        if isinstance(config, EagleConfig):
            return cls(config.num_attention_heads, config.num_key_value_heads, config.head_dim)
        found: Any = transformers_config(config)
        queries = found.num_attention_heads
        keys = getattr(found, "num_key_value_heads", None) or queries
        size = getattr(found, "head_dim", None) or found.hidden_size // queries
        return cls(queries, keys, size)

    def rows(self, projection: str) -> int:
        """Return how many numbers a projection of theirs has."""
        return self.size * (self.queries if projection in ("q_proj", COLUMNS) else self.keys)


@torch.no_grad()
def with_more_heads(draft: Checkpoint, least: int, seed: int) -> Checkpoint:
    """Return a drafter that has at least `least` more query heads in each of its layers.

    The new ones are last, and write nothing yet. There are as few as the architecture takes. Raises
    OptionError for one that takes none.
    """
    assert isinstance(draft.config, DraftConfig | EagleConfig)
    old = Heads.of(draft.config)
    each = old.queries // old.keys
    for groups in range(-(-least // each), old.keys + least + 1):
        new = Heads(old.queries + groups * each, old.keys + groups, old.size)
        if (config := _described(draft.config, new)) is not None:
            break
    else:
        assert isinstance(draft.config, DraftConfig)
        kind = draft.config.architecture.get("model_type")
        raise OptionError(f"a draft model of the kind {kind} cannot have more attention heads")
    random = torch.Generator().manual_seed(seed)
    tensors = {name: _widened(name, part, old, new, random) for name, part in draft.tensors.items()}
    return replace(draft, config=config, tensors=tensors)


def _described(config: DraftConfig | EagleConfig, heads: Heads) -> DraftConfig | EagleConfig | None:
    """Return the configuration of a drafter with such heads, None if there is no such drafter."""
    if isinstance(config, EagleConfig):
        queries, keys = heads.queries, heads.keys
        return replace(config, num_attention_heads=queries, num_key_value_heads=keys)
    sizes = {"num_attention_heads": heads.queries, "num_key_value_heads": heads.keys}
    architecture = dict(config.architecture) | sizes | {"head_dim": heads.size}
    wider = replace(config, architecture=architecture)
    try:
        shapes = own_shapes(wider)
    except OptionError:
        return None
    found = [shape for name, shape in shapes.items() if name.endswith(".q_proj.weight")]
    is_so = found and all(shape[0] == heads.rows("q_proj") for shape in found)
    return wider if is_so else None


def _widened(name: str, part: Tensor, old: Heads, new: Heads, random: torch.Generator) -> Tensor:
    projection = name.split(".")[-2] if "." in name else ""
    more = new.rows(projection) - old.rows(projection) if projection in (*ROWS, COLUMNS) else 0
    if not more:
        return part
    if projection == COLUMNS:
        return part if part.dim() == 1 else torch.cat([part, part.new_zeros(len(part), more)], -1)
    if part.dim() == 1:
        return torch.cat([part, part.new_zeros(more)])
    rows = torch.randn(more, part.shape[1], generator=random) * _SPREAD
    return torch.cat([part, rows.to(part)])
