"""Keys and values of a trained head: those of committed rows, and of a draft that is being grown.

Each request has its own; one pass of the head runs the rows of all of them side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from outrider.trees.bits import bit_words

_GRANULE = 256  # room grows in steps of so many rows


class HeadCache:
    """One request's keys and values in each layer of a head, row by row in the order they came."""

    def __init__(self) -> None:
        self.length = 0
        self._layers: list[tuple[Tensor, Tensor]] = []

    def crop(self, length: int) -> None:
        """Forget all rows beyond the first `length`."""
        self.length = min(self.length, length)

    def room(
        self, layer: int, end: int, heads: int, width: int, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return a layer's keys and values [heads, T, width], with room for `end` rows at least.

        What has been stored stays where it is; `like` is of their type.
        """
        if layer == len(self._layers):
            size = -(-end // _GRANULE) * _GRANULE
            keys = like.new_zeros(heads, size, width)
            self._layers.append((keys, torch.zeros_like(keys)))
        keys, values = self._layers[layer]
        if end > keys.shape[1]:
            keys, values = _grown(keys, end), _grown(values, end)
            self._layers[layer] = (keys, values)
        return keys, values

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put rows [R, heads, width] behind the others; return all of them [heads, T, width].

        They count as stored once `length` says so: every layer stores the same rows.
        """
        end = self.length + len(key)
        keys, values = self.room(layer, end, key.shape[1], key.shape[2], key)
        keys[:, self.length : end] = key.transpose(0, 1)
        values[:, self.length : end] = value.transpose(0, 1)
        return keys[:, :end], values[:, :end]


def _grown(stored: Tensor, length: int) -> Tensor:
    size = -(-max(length, 2 * stored.shape[1]) // _GRANULE) * _GRANULE
    larger = stored.new_zeros(stored.shape[0], size, stored.shape[2])
    larger[:, : stored.shape[1]] = stored
    return larger


@dataclass(frozen=True, slots=True)
class HeadRows:
    """One request's rows in a pass of a head, stored behind all others, and what they see.

    Without `branches` a row sees all that is stored before it, and itself. Rows of a draft see the
    first `prefix` rows, and of those behind them each its branch: the bits of a number.
    """

    cache: HeadCache
    count: int
    prefix: int = 0
    branches: Sequence[int] | None = None


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
            mixed.append(_attend(query[rows], keys, values, _seen(part)))
            first += part.count
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)

    def room(
        self, layer: int, heads: int, width: int, like: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return keys and values [heads, T, width] of each request, with room for the pass."""
        rooms = [
            part.cache.room(layer, part.cache.length + part.count, heads, width, like)
            for part in self._parts
        ]
        return [keys for keys, _ in rooms], [values for _, values in rooms]

    @cached_property
    def places(self) -> Tensor:
        """[R, 3]: each row's request, its place in the cache, how many rows from the first on it
        sees.
        """
        places: list[tuple[int, int, int]] = []
        for request, part in enumerate(self._parts):
            for place in range(part.cache.length, part.cache.length + part.count):
                seen = place + 1 if part.branches is None else part.prefix
                places.append((request, place, seen))
        return torch.tensor(places)

    @cached_property
    def branches(self) -> Tensor:
        """[R, words]: which of the rows behind those each sees, as bits of 64-bit words."""
        return bit_words([b for part in self._parts for b in part.branches or [0] * part.count])

    def commit(self) -> None:
        """Count the rows of the pass as stored."""
        for part in self._parts:
            part.cache.length += part.count


def _seen(part: HeadRows) -> Tensor | None:
    """Return which of all rows each row sees, [R, T]; None: all."""
    stored = part.cache.length
    if part.branches is None:
        if part.count == 1:
            return None
        return torch.ones(part.count, stored + part.count, dtype=torch.bool).tril(stored)
    seen = torch.zeros(part.count, stored + part.count, dtype=torch.bool)
    seen[:, : part.prefix] = True
    for row, branch in enumerate(part.branches):
        seen[row, [part.prefix + i for i in range(branch.bit_length()) if branch >> i & 1]] = True
    return seen


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
