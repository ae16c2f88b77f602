"""Keys and values of a trained head: those of committed rows, and of a draft that is being grown.

Each request has its own; one pass of the head runs the rows of all of them side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_GRANULE = 256  # room grows in steps of so many rows


class HeadCache:
    """One request's keys and values in each layer of a head, row by row in the order they came."""

    def __init__(self) -> None:
        self.length = 0
        self._layers: list[tuple[Tensor, Tensor]] = []

    def crop(self, length: int) -> None:
        """Forget all rows beyond the first `length`."""
        self.length = min(self.length, length)

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put rows [R, heads, width] behind the others; return all of them [heads, T, width].

        They count as stored once `length` says so: every layer stores the same rows.
        """
        end = self.length + len(key)
        if layer == len(self._layers):
            self._layers.append((_room_like(key, end), _room_like(value, end)))
        keys, values = self._layers[layer]
        if end > keys.shape[1]:
            keys, values = _grown(keys, end), _grown(values, end)
            self._layers[layer] = (keys, values)
        keys[:, self.length : end] = key.transpose(0, 1)
        values[:, self.length : end] = value.transpose(0, 1)
        return keys[:, :end], values[:, :end]


def _room_like(rows: Tensor, length: int) -> Tensor:
    size = -(-length // _GRANULE) * _GRANULE
    return rows.new_zeros(rows.shape[1], size, rows.shape[2])


def _grown(stored: Tensor, length: int) -> Tensor:
    size = -(-max(length, 2 * stored.shape[1]) // _GRANULE) * _GRANULE
    larger = stored.new_zeros(stored.shape[0], size, stored.shape[2])
    larger[:, : stored.shape[1]] = stored
    return larger


@dataclass(frozen=True, slots=True)
class HeadRows:
    """One request's rows in a pass of a head, and what they see.

    `seen` [R, T] says which of all rows, those stored before and these, each sees; None: all that
    are stored before it, and itself.
    """

    cache: HeadCache
    count: int
    seen: Tensor | None = None


class HeadAttention:
    """Attention for one pass of a head over the rows of several requests, one below the other."""

    def __init__(self, parts: Sequence[HeadRows]) -> None:
        self._parts = parts

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store keys and values [R, key heads, width]; return the mixed values [R, heads * width]
        for `query` [R, heads, width].
        """
        mixed, first = [], 0
        for part in self._parts:
            rows = slice(first, first + part.count)
            keys, values = part.cache.store(layer, key[rows], value[rows])
            seen = _causal(part) if part.seen is None else part.seen
            mixed.append(_attend(query[rows], keys, values, seen))
            first += part.count
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)

    def commit(self) -> None:
        """Count the rows of the pass as stored."""
        for part in self._parts:
            part.cache.length += part.count


def _causal(part: HeadRows) -> Tensor | None:
    if part.count == 1:
        return None
    stored = part.cache.length
    return torch.ones(part.count, stored + part.count, dtype=torch.bool).tril(stored)


def _attend(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """Return the mixed values [R, heads * width] of one request's rows."""
    mixed = functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=None if seen is None else seen.to(query.device),
        enable_gqa=query.shape[1] != keys.shape[0],
    )
    return mixed[0].transpose(0, 1).flatten(1)
