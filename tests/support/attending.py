"""Attention as a head's caller keeps it, in its plainest form: one request, no padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class CausalAttend:
    """Keeps the keys and values of one request; a row sees all kept before it, and itself.

    Where `tree` [rows, columns] is set, it says instead which of the latest columns a row sees; all
    earlier ones it sees anyway.
    """

    def __init__(self) -> None:
        self.tree: Tensor | None = None
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys = _extend(self._keys, layer, key)
        values = _extend(self._values, layer, value)
        shared = query.shape[1] // key.shape[1]
        scores = torch.einsum("rhd,khd->hrk", query, keys.repeat_interleave(shared, dim=1))
        hidden = ~self._seen(len(query), len(keys))
        weights = (scores * query.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf).softmax(dim=-1)
        mixed = torch.einsum("hrk,khd->rhd", weights, values.repeat_interleave(shared, dim=1))
        return mixed.flatten(1)

    def keep(self, count: int) -> None:
        """Forget all rows but the first so many."""
        for kept in (self._keys, self._values):
            for layer, rows in kept.items():
                kept[layer] = rows[:count]

    def _seen(self, rows: int, columns: int) -> Tensor:
        seen = torch.ones(rows, columns, dtype=torch.bool)
        if self.tree is None:
            return seen.tril(columns - rows)
        seen[:, columns - self.tree.shape[1] :] = self.tree
        return seen


def _extend(kept: dict[int, Tensor], layer: int, rows: Tensor) -> Tensor:
    kept[layer] = torch.cat((kept[layer], rows)) if layer in kept else rows
    return kept[layer]


class SideBySide:
    """Attends for several requests whose rows stand one after the other in a pass."""

    def __init__(self, requests: Sequence[CausalAttend], rows: Sequence[int]) -> None:
        self._requests = requests
        self._rows = list(rows)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = zip(*(torch.split(one, self._rows) for one in (query, key, value)), strict=True)
        return torch.cat(
            [attend(layer, *part) for attend, part in zip(self._requests, parts, strict=True)]
        )
