"""What a Transformers decoder takes for its own cache, for the length of a pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import Cache, EncoderDecoderCache


class _NewRows(Cache):
    """A cache for self-attention that holds nothing: new rows go on as they come."""

    def __init__(self) -> None:
        super().__init__(layers=[])

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0


class _StoredLayer:
    """Keys and values that are there already."""

    __slots__ = ("keys", "values")

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys
        self.values = values


class _Stored(Cache):
    """A cache for cross-attention that is filled."""

    def __init__(self, layers: Mapping[int, tuple[Tensor, Tensor]]) -> None:
        stored: Any = [_StoredLayer(*layers[layer]) for layer in sorted(layers)]
        super().__init__(layers=stored)


class PassCache(EncoderDecoderCache):
    """Gives a decoder's cross-attention the stored inputs, so that it projects none again.

    Its self-attention finds nothing stored: whoever attends in its place knows where rows are.
    """

    def __init__(self, layers: Mapping[int, tuple[Tensor, Tensor]]) -> None:
        """`layers`: keys and values [B, heads, tokens, width] of the inputs, numbered from 0."""
        own: Any = self  # whose caches are declared as Transformers' usual kind
        own.self_attention_cache = _NewRows()
        own.cross_attention_cache = _Stored(layers)
        self.is_updated = dict.fromkeys(layers, True)
