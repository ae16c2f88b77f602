"""What encoders made of inputs: the keys and values that decoders' cross-attention reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from outrider.targets.cache import KVCache, Placement


@dataclass(slots=True, eq=False)
class StoredInputs:
    """The inputs of the sequences of one pass, as its decoder's layers see them."""

    layers: dict[int, tuple[Tensor, Tensor]]
    """Keys and values [B, heads, bucket, width] of each layer."""
    lengths: tuple[int, ...]
    """How many of those each sequence's input has."""
    _bias: Tensor | None = field(default=None)

    def bias(self, like: Tensor) -> Tensor:
        """Return the additive mask [B, 1, 1, bucket]: 0 on the input, -inf beyond it."""
        if self._bias is None:
            keys = next(iter(self.layers.values()))[0]
            stored = torch.arange(keys.shape[2], device=like.device)
            ends = torch.tensor(self.lengths, device=like.device)
            bias = torch.zeros(len(self.lengths), len(stored), device=like.device, dtype=like.dtype)
            bias.masked_fill_(stored >= ends[:, None], float("-inf"))
            self._bias = bias[:, None, None]
        return self._bias


class EncodedInputs:
    """The inputs of all open sequences, in slots as their texts are in the cache."""

    def __init__(self) -> None:
        self._cache = KVCache()
        self._lengths: list[int] = []

    @property
    def num_bytes(self) -> int:
        """Bytes held."""
        return self._cache.num_bytes

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token of an input."""
        return self._cache.bytes_per_token

    def size_for(self, slots: int, tokens: int) -> tuple[int, int]:
        """Return the slots, and the tokens of each, that so many inputs come to."""
        return self._cache.size_for(slots, tokens)

    def add(self) -> None:
        """Let the next slot follow; there is nothing in it yet."""
        slot = len(self._lengths)
        self._cache.reserve(slot + 1, 0)
        self._cache.clear(slot)
        self._lengths.append(0)

    def length(self, slot: int) -> int:
        """Return how many tokens the input of a slot has: 0 as long as it was not read."""
        return self._lengths[slot]

    def begin(self, slot: int, length: int) -> None:
        """Make room for an input in a slot, in place of one that is there."""
        self._cache.reserve(0, length)
        self._cache.clear(slot)
        self._lengths[slot] = length

    def write(self, slot: int, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the keys and values [1, heads, length, width] of a layer."""
        length = keys.shape[2]
        self._cache.write(layer, keys, values, Placement(slot, (0,), length), length)

    def move_last(self, slot: int) -> None:
        """Let a slot hold what the last one does, and drop that one."""
        last = len(self._lengths) - 1
        if slot != last:
            self._cache.move(last, slot, self._lengths[last])
            self._lengths[slot] = self._lengths[last]
        self._lengths.pop()

    def stored(self, first: int, slots: int, granule: int) -> StoredInputs:
        """Return the inputs of neighbouring slots, padded to a multiple of `granule` tokens.

        Raises ValueError for a slot whose input was not read.
        """
        lengths = tuple(self._lengths[first : first + slots])
        if not all(lengths):
            raise ValueError("a sequence is scored before its input is read")
        bucket = -(-max(lengths) // granule) * granule
        self._cache.reserve(0, bucket)
        return StoredInputs(self._cache.views(first, slots, bucket), lengths)
