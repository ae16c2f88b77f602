"""The plan of a pass in plain PyTorch: sequences padded to a rectangle, attention with a mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from outrider.targets.attention import WrittenLayers
from outrider.targets.cache import KVCache, Placement


class PaddedPlan:
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
        in_order: bool = False,
    ) -> None:
        """`tile`: attention runs with at least so many query rows a sequence.

        `in_order`: a row in a branch meets its keys in the order of the text, wherever they are
        stored, so that sums over them have the bits they have without a tree.
        """
        self.cache = cache
        self.placement = placement
        self.bucket = bucket
        self.fill = max(0, tile - placement.width)
        self._positions = positions
        self._branches = branches
        self._in_order = in_order
        self._orders: list[tuple[int, Tensor]] | None = None
        self._visible: Tensor | None = None
        self._key_positions: Tensor | None = None
        self._biases: dict[tuple[object, ...], Tensor] = {}
        self._written = WrittenLayers()

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Store the new keys and values, and attend over all that each row may see."""
        self._written.add(layer)
        keys, values = self.cache.write(layer, key, value, self.placement, self.bucket)
        query = functional.pad(query, (0, 0, 0, self.fill)) if self.fill else query
        bias = self.layer_bias(layer, window, query.shape[1] // keys.shape[1], query)
        mixed = folded_attention(query, keys, values, bias, scale, softcap)
        if self._in_order:
            # The whole tile again for each such row: its bits may depend on the shape.
            for row, order in self._rows_out_of_order():
                turned = (_in_turn(keys, order), _in_turn(values, order))
                again = folded_attention(query, *turned, bias, scale, softcap)
                mixed[:, :, row] = again[:, :, row]
        return mixed[:, :, : self.placement.width].transpose(1, 2).contiguous()

    def layer_bias(self, layer: int, window: int | None, groups: int, like: Tensor) -> Tensor:
        """Return what is added to the scores of a layer: `bias`, the same for all of them."""
        return self.bias(window, groups, like)

    def bias(self, window: int | None, groups: int, like: Tensor) -> Tensor:
        """Return the additive mask [B, 1, groups * (W + fill), bucket]: 0 to look, -inf not to.

        `window` limits a row to the keys fewer than so many positions back. The rows that only
        fill up the tile look everywhere.
        """
        key = (window, groups, like.device, like.dtype)
        if key not in self._biases:
            visible, _ = self._visibility()
            if window is not None:
                visible = visible & (self.distances() < window)
            bias = torch.zeros(visible.shape, dtype=like.dtype, device=visible.device)
            bias.masked_fill_(~visible, float("-inf"))
            bias = functional.pad(bias, (0, 0, 0, self.fill))
            self._biases[key] = bias.repeat(1, groups, 1)[:, None].to(like.device)
        return self._biases[key]

    def distances(self) -> Tensor:
        """Return how many positions each key lies before each row [B, W, bucket]."""
        _, key_positions = self._visibility()
        return self._positions[:, :, None] - key_positions[:, None, :]

    def _rows_out_of_order(self) -> list[tuple[int, Tensor]]:
        """Return the rows that see tokens stored elsewhere than the text has them.

        Each with the stored tokens [B, bucket] in the order of its sequences' texts.
        """
        if self._orders is None:
            orders: dict[int, Tensor] = {}
            stored = torch.arange(self.bucket, device=self._positions.device)
            for b, branch in enumerate(self._branches):
                for row, order in () if branch is None else branch.orders(stored):
                    whole = orders.setdefault(row, stored.repeat(len(self._branches), 1))
                    whole[b] = order
            self._orders = list(orders.items())
        return self._orders

    def _visibility(self) -> tuple[Tensor, Tensor]:
        if self._visible is None or self._key_positions is None:
            device = self._positions.device
            starts = torch.tensor(self.placement.starts, device=device)
            stored = torch.arange(self.bucket, device=device)
            rows = starts[:, None] + torch.arange(self.placement.width, device=device)
            if self._in_order:
                rows = self._positions
            self._visible = stored <= rows[:, :, None]
            self._key_positions = stored.expand(len(starts), -1)
            if not self._in_order and any(branch is not None for branch in self._branches):
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

    def orders(self, stored: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows whose nodes are stored elsewhere than in a chain, and what they see.

        That is `stored`, the numbers of all tokens [bucket], with the row's nodes moved to where
        the text has them.
        """
        for row, nodes in self._seen:
            if nodes != list(range(len(nodes))):
                order = stored.clone()
                places = torch.tensor(nodes, device=stored.device) + self._base
                order[self._base : self._base + len(nodes)] = places
                yield row, order

    def apply(self, visible: Tensor, key_positions: Tensor) -> None:
        """Write the tree into one sequence's visibility [W, bucket] and key positions [bucket]."""
        base = self._base
        # The nodes of later passes may lie beyond the keys that this one reads.
        count = max(0, min(len(self._depths), len(key_positions) - base))
        depths = torch.tensor(self._depths[:count], device=key_positions.device)
        key_positions[base : base + count] = depths + (base - 1)
        if not self._seen:
            return
        # Two writes in all: one for each row takes longer than all else that lays out a tree.
        first, last = self._seen[0][0], self._seen[-1][0] + 1
        visible[first:last, base : base + count] = False
        rows = [row for row, nodes in self._seen for _ in nodes]
        visible[rows, [base + node for _, nodes in self._seen for node in nodes]] = True


def _in_turn(stored: Tensor, order: Tensor) -> Tensor:
    """Return what is stored [B, heads, tokens, width] in an order [B, tokens]."""
    return stored.gather(2, order[:, None, :, None].expand_as(stored))


def folded_attention(
    query: Tensor,  # [B, heads, W, width]
    keys: Tensor,  # [B, key heads, tokens, width]
    values: Tensor,
    bias: Tensor,  # [B, 1, heads / key heads * W, tokens]
    scale: float,
    softcap: float | None,
) -> Tensor:
    """Attend; heads that share keys become rows of one head, so that no key is copied for them.

    Returns [B, heads, W, value width].
    """
    batch, heads, width, size = query.shape
    folded = query.reshape(batch, keys.shape[1], heads // keys.shape[1] * width, size)
    if softcap is None:
        mixed = functional.scaled_dot_product_attention(
            folded, keys, values, attn_mask=bias, scale=scale
        )
    else:
        mixed = _capped_attention(folded, keys, values, bias, scale, softcap)
    return mixed.reshape(batch, heads, width, values.shape[-1])


def _capped_attention(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float, softcap: float
) -> Tensor:
    """Attend with scores that are squeezed into -softcap to softcap."""
    scores = torch.matmul(query, keys.transpose(2, 3)) * scale
    scores = torch.tanh(scores / softcap) * softcap + bias
    exact = torch.promote_types(scores.dtype, torch.float32)
    return torch.matmul(functional.softmax(scores, dim=-1, dtype=exact).to(query.dtype), values)
