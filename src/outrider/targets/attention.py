"""Attention over outrider's own cache, plugged into Transformers' attention interface.

The model code stays as it is: each layer hands over its new queries, keys and values, and finds
the plan of the pass among its keyword arguments. The plan knows where rows are stored, and which
keys each row may see: the committed prefix, its own ancestors in the draft tree, and itself.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from outrider.errors import UnsupportedModelError
from outrider.targets.cache import KVCache, Placement

IMPLEMENTATION = "outrider"

# Extra arguments some layers hand to their attention. These change nothing that is computed here;
# any other one with a value would be ignored, so it is refused.
_HARMLESS = frozenset(
    {"position_ids", "output_attentions", "output_router_logits", "use_cache", "is_causal"}
)


class PassPlan:
    """Storage and visibility of one pass of B sequences, W rows each."""

    def __init__(
        self,
        cache: KVCache,
        placement: Placement,
        bucket: int,
        positions: Tensor,  # [B, W] absolute positions of the rows
        branches: Sequence[Branches | None],
        *,
        tile: int = 1,
    ) -> None:
        """`tile`: attention runs with at least so many query rows a sequence."""
        self.cache = cache
        self.placement = placement
        self.bucket = bucket
        self.fill = max(0, tile - placement.width)
        self._positions = positions
        self._branches = branches
        self._visible: Tensor | None = None
        self._key_positions: Tensor | None = None
        self._biases: dict[tuple[object, ...], Tensor] = {}
        self._written: set[int] = set()

    def write(self, module: nn.Module, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values; return all that the rows may look at.

        Raises UnsupportedModelError for a layer without an index, or one run twice in a pass.
        """
        layer = getattr(module, "layer_idx", None)
        if not isinstance(layer, int):
            raise UnsupportedModelError(f"{type(module).__name__} does not say which layer it is")
        if layer in self._written:
            raise UnsupportedModelError(f"{type(module).__name__} runs layer {layer} twice a pass")
        self._written.add(layer)
        return self.cache.write(layer, key, value, self.placement, self.bucket)

    def bias(self, window: int | None, groups: int, like: Tensor) -> Tensor:
        """Return the additive mask [B, 1, groups * (W + fill), bucket]: 0 to look, -inf not to.

        `window` limits a row to the keys fewer than so many positions back. The rows that only
        fill up the tile look everywhere.
        """
        key = (window, groups, like.device, like.dtype)
        if key not in self._biases:
            visible, key_positions = self._visibility()
            if window is not None:
                distance = self._positions[:, :, None] - key_positions[:, None, :]
                visible = visible & (distance < window)
            bias = torch.zeros(visible.shape, dtype=like.dtype, device=visible.device)
            bias.masked_fill_(~visible, float("-inf"))
            bias = functional.pad(bias, (0, 0, 0, self.fill))
            self._biases[key] = bias.repeat(1, groups, 1)[:, None].to(like.device)
        return self._biases[key]

    def _visibility(self) -> tuple[Tensor, Tensor]:
        if self._visible is None or self._key_positions is None:
            device = self._positions.device
            starts = torch.tensor(self.placement.starts, device=device)
            stored = torch.arange(self.bucket, device=device)
            rows = starts[:, None] + torch.arange(self.placement.width, device=device)
            self._visible = stored <= rows[:, :, None]
            self._key_positions = stored.expand(len(starts), -1)
            if any(branch is not None for branch in self._branches):
                self._key_positions = self._key_positions.clone()
                for b, branch in enumerate(self._branches):
                    if branch is not None:
                        branch.apply(self._visible[b], self._key_positions[b])
        return self._visible, self._key_positions


class Branches:
    """The part of a tree that is no chain: which stored nodes each row of a pass may see."""

    def __init__(self, base: int, depths: Sequence[int], seen: Sequence[tuple[int, list[int]]]):
        self._base = base  # where node 0 is stored
        self._depths = depths
        self._seen = seen  # (row of the pass, the nodes it may see)

    def apply(self, visible: Tensor, key_positions: Tensor) -> None:
        """Write the tree into one sequence's visibility [W, bucket] and key positions [bucket]."""
        base = self._base
        # The nodes of later passes may lie beyond the keys that this one reads.
        count = max(0, min(len(self._depths), len(key_positions) - base))
        depths = torch.tensor(self._depths[:count], device=key_positions.device)
        key_positions[base : base + count] = depths + (base - 1)
        for row, nodes in self._seen:
            visible[row, base : base + count] = False
            visible[row, [base + node for node in nodes]] = True


def cached_attention(
    module: nn.Module,
    query: Tensor,  # [B, heads, W, width]
    key: Tensor,  # [B, key heads, W, width]
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    outrider_plan: PassPlan | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Store the new keys and values, and attend over all that each row may see.

    Returns [B, W, heads, width], in the form Transformers' attention functions have.
    """
    _refuse_unknown(module, attention_mask, dropout, outrider_plan, others)
    assert outrider_plan is not None
    plan = outrider_plan
    keys, values = plan.write(module, key, value)
    query = functional.pad(query, (0, 0, 0, plan.fill)) if plan.fill else query
    batch, heads, width, size = query.shape
    groups = heads // keys.shape[1]
    bias = plan.bias(sliding_window, groups, query)
    scale = size**-0.5 if scaling is None else scaling
    # Heads that share keys become rows of one head: no copy of the cache is made for them.
    folded = query.reshape(batch, keys.shape[1], groups * width, size)
    if softcap is None:
        mixed = functional.scaled_dot_product_attention(
            folded, keys, values, attn_mask=bias, scale=scale
        )
    else:
        mixed = _capped_attention(folded, keys, values, bias, scale, softcap)
    mixed = mixed.reshape(batch, heads, width, values.shape[-1])
    mixed = mixed[:, :, : width - plan.fill]
    return mixed.transpose(1, 2).contiguous(), None


def _capped_attention(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float, softcap: float
) -> Tensor:
    scores = torch.matmul(query, keys.transpose(2, 3)) * scale
    scores = torch.tanh(scores / softcap) * softcap + bias
    exact = torch.promote_types(scores.dtype, torch.float32)
    return torch.matmul(functional.softmax(scores, dim=-1, dtype=exact).to(query.dtype), values)


def _refuse_unknown(
    module: nn.Module,
    attention_mask: Tensor | None,
    dropout: float,
    plan: PassPlan | None,
    others: dict[str, Any],
) -> None:
    name = type(module).__name__
    if plan is None:
        raise UnsupportedModelError(
            f"{name} was called without a plan: the model is in the middle of an outrider pass, "
            "or does not hand keyword arguments down to its attention"
        )
    if attention_mask is not None:
        raise UnsupportedModelError(f"{name} builds an attention mask of its own")
    if dropout:
        raise UnsupportedModelError(f"{name} is in training mode (dropout {dropout})")
    unknown = [key for key, item in others.items() if item is not None and key not in _HARMLESS]
    if unknown:
        raise UnsupportedModelError(f"{name} uses attention features not known: {unknown[0]}")


# A model shared by several targets runs one pass at a time: its configuration names the attention
# for the length of a pass, and a neighbour must neither see nor undo that.
_locks: weakref.WeakKeyDictionary[nn.Module, threading.Lock] = weakref.WeakKeyDictionary()
_locks_guard = threading.Lock()


class AttentionSwitch:
    """Puts outrider's attention into a model for the length of a pass, and takes it out again."""

    def __init__(self, model: PreTrainedModel) -> None:
        ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, cached_attention)
        configs = [getattr(module, "config", None) for module in model.modules()]
        self._configs = list({id(c): c for c in configs if c is not None}.values())
        with _locks_guard:
            self._lock = _locks.setdefault(model, threading.Lock())

    @contextmanager
    def on(self) -> Iterator[None]:
        """Run the body with outrider's attention; the model's own comes back whatever happens."""
        with self._lock:
            before = [config._attn_implementation_internal for config in self._configs]
            try:
                for config in self._configs:
                    config._attn_implementation_internal = IMPLEMENTATION
                yield
            finally:
                for config, implementation in zip(self._configs, before, strict=True):
                    config._attn_implementation_internal = implementation
