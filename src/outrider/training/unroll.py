"""Attention of a head that is unrolled: drafted as it will be when it serves (EAGLE-3, 2503.01840).

From every token of a text a draft goes on, all of them at once. Step 0 reads the true features;
step j reads what step j - 1 made up. A row of step j stands for the draft from its own token on:
it sees the true rows up to that token, and of each later step the one row of its own draft.
"""

from __future__ import annotations

import torch
from torch import Tensor


class UnrolledAttention:
    """The keys and values of a batch [B, T] through the steps of an unrolled draft."""

    def __init__(self, batch: int, length: int) -> None:
        self._shape = (batch, length)
        self._keys: dict[int, list[Tensor]] = {}
        self._values: dict[int, list[Tensor]] = {}
        self._hidden: Tensor | None = None

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Take in a step's rows, [B * T, heads, width] each; return the mixed values of them."""
        query, key, value = (self._by_head(part) for part in (query, key, value))
        keys = self._keys.setdefault(layer, [])
        values = self._values.setdefault(layer, [])
        shared = query.shape[1] // key.shape[1]
        keys.append(key.repeat_interleave(shared, dim=1))
        values.append(value.repeat_interleave(shared, dim=1))
        mixed = self._mix(query * query.shape[-1] ** -0.5, keys, values)
        return mixed.transpose(1, 2).flatten(2).flatten(0, 1)

    def _mix(self, query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        weights = self._weights(query, keys).to(query.dtype)
        length = self._shape[1]
        mixed = weights[..., :length] @ values[0]
        for step, value in enumerate(values[1:]):
            mixed = mixed + weights[..., length + step, None] * value
        return mixed

    def _weights(self, query: Tensor, keys: list[Tensor]) -> Tensor:
        """Return how much each row looks at the true rows and at its own draft's, side by side."""
        scores = query @ keys[0].transpose(2, 3)
        scores = scores.masked_fill(self._mask(query), float("-inf"))
        own = [(query * key).sum(dim=-1, keepdim=True) for key in keys[1:]]
        exact = torch.promote_types(scores.dtype, torch.float32)
        return torch.cat([scores, *own], dim=-1).softmax(dim=-1, dtype=exact)

    def _mask(self, like: Tensor) -> Tensor:
        if self._hidden is None:
            length = self._shape[1]
            seen = torch.ones(length, length, dtype=torch.bool, device=like.device).tril()
            self._hidden = ~seen
        return self._hidden

    def _by_head(self, rows: Tensor) -> Tensor:
        """Return rows [B * T, heads, width] as [B, heads, T, width]."""
        return rows.reshape(*self._shape, *rows.shape[1:]).transpose(1, 2)
