"""Attention over outrider's own cache, plugged into Transformers' attention interface.

The model code stays as it is: each layer hands over its new queries, keys and values, and finds
the plan of the pass among its keyword arguments. The plan knows where rows are stored, and which
keys each row may see: the committed prefix, its own ancestors in the draft tree, and itself.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from outrider.errors import UnsupportedModelError

IMPLEMENTATION = "outrider"

# Extra arguments some layers hand to their attention. These change nothing that is computed here;
# any other one with a value would be ignored, so it is refused.
_HARMLESS = frozenset(
    {"position_ids", "output_attentions", "output_router_logits", "use_cache", "is_causal"}
)


class Plan(Protocol):
    """What a pass makes of a layer's new queries, keys and values."""

    def attend(
        self,
        layer: int,
        query: Tensor,  # [B, heads, W, width]
        key: Tensor,  # [B, key heads, W, width]
        value: Tensor,
        *,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Store the keys and values and return the mixed values [B, W, heads, width].

        `window` limits a row to the keys fewer than so many positions back.
        """
        ...


class WrittenLayers:
    """The layers that have stored their keys in a pass: each may do so once."""

    def __init__(self) -> None:
        self._layers: set[int] = set()

    def add(self, layer: int) -> None:
        """Take note of a layer; raises UnsupportedModelError for one that comes twice."""
        if layer in self._layers:
            raise UnsupportedModelError(f"the model runs layer {layer} twice a pass")
        self._layers.add(layer)


def cached_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    outrider_plan: Plan | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Let the plan of the pass store and attend, in the form Transformers' functions have."""
    refuse_unknown(module, attention_mask, dropout, outrider_plan, others)
    assert outrider_plan is not None
    layer = layer_number(module)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    mixed = outrider_plan.attend(
        layer, query, key, value, scale=scale, window=sliding_window, softcap=softcap
    )
    return mixed, None


def layer_number(module: nn.Module) -> int:
    """Return which layer an attention is of; raises UnsupportedModelError if it does not say."""
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int):
        raise UnsupportedModelError(f"{type(module).__name__} does not say which layer it is")
    return layer


def refuse_unknown(
    module: nn.Module,
    attention_mask: Tensor | None,
    dropout: float,
    plan: object | None,
    others: dict[str, Any],
) -> None:
    """Raise UnsupportedModelError for what a layer hands over and would be ignored."""
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

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        name: str = IMPLEMENTATION,
        attention: Callable[..., tuple[Tensor, None]] = cached_attention,
    ) -> None:
        """`attention`, which Transformers' interface knows by `name`, serves all layers."""
        ALL_ATTENTION_FUNCTIONS.register(name, attention)
        self._name = name
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
                    config._attn_implementation_internal = self._name
                yield
            finally:
                for config, implementation in zip(self._configs, before, strict=True):
                    config._attn_implementation_internal = implementation

    @contextmanager
    def off(self) -> Iterator[None]:
        """Run the body with the model's own attention, and nobody else's pass beside it."""
        with self._lock:
            yield
