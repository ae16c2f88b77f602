"""Trees that are drawn for a rule that rejects, and grow by what was drawn above."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from outrider.trees.growth import SampledGrowing
from outrider.trees.ranks import RankRecord
from outrider.types import ROOT


class DrawnGrowth(SampledGrowing):
    """A sampled draft that grows where it is likeliest to be accepted, one level at a time.

    How many children a node gets rests on the laws of its level and on what was drawn above them:
    never on the children themselves, nor is one left out once it was drawn. Whatever is done with
    the levels below, a child is as good a draw from its law as if it stood alone, so the rules
    remain exact; anything that looked ahead would spoil them.

    What a child is worth follows from how often children of its rank were accepted where the law
    was as sure of itself, what a drawn one is worth from its own probability besides. Of all nodes
    that can be foreseen, the deeper ones as they turn out on average, the likeliest are drawn.
    """

    def __init__(self, record: RankRecord, budget: int, depth: int) -> None:
        """`budget` and `depth`: the most nodes and levels."""
        super().__init__()
        self._record = record
        self._budget = budget
        self._most_levels = depth
        self._reach: list[float] = []  # that each node is accepted, with all above it
        if budget <= 0 or depth <= 0:
            self.frontier = []

    @property
    def counts(self) -> list[int]:
        return [min(self._record.width, self._left)] * len(self.frontier)

    @property
    def _left(self) -> int:
        return self._budget - len(self.tokens)

    def add(
        self,
        tokens: Sequence[Sequence[int]],
        chances: Sequence[Sequence[float]],
        q: Tensor | None = None,
    ) -> None:
        if q is None:
            raise ValueError("a sampled draft needs the laws it was drawn from")
        reach = [1.0 if node == ROOT else self._reach[node] for node in self.frontier]
        level = self.depth(self.frontier[0]) + 1
        counts, least = self._children(reach, [len(row) for row in tokens], q, level)
        first = len(self.tokens)
        for row, (parent, count) in enumerate(zip(self.frontier, counts, strict=True)):
            self._extend(parent, tokens[row][:count])
            self._laws += [q[row]] * count
            likely = enumerate(chances[row][:count])
            self._reach += [reach[row] * self._record.drawn(rank, one) for rank, one in likely]
        self.frontier = self._worth_expanding(range(first, len(self.tokens)), level, least)

    def _children(
        self, reach: Sequence[float], possible: Sequence[int], q: Tensor, level: int
    ) -> tuple[list[int], float]:
        """Return how many children each node of the frontier gets, and what the least is worth."""
        worth = self._record.foreseen(q.amax(dim=-1).tolist()) * np.array(reach)[:, None]
        width = worth.shape[1]
        worth[np.arange(width) >= np.array(possible)[:, None]] = 0
        below = self._record.descent(self._budget, self._most_levels - level)
        every = np.multiply.outer(worth[worth > 0], below).ravel()
        if len(every) <= self._left:
            return (worth > 0).sum(axis=1).tolist(), 0.0
        least = float(np.partition(every, -self._left)[-self._left])
        # The earlier of equals come first, so that no child is without its elder siblings.
        order = np.argsort(-worth, axis=None, kind="stable")
        kept = order[: min(self._left, int((worth >= least).sum()))]
        counts: list[int] = np.bincount(kept // width, minlength=len(worth)).tolist()
        return counts, least

    def _worth_expanding(self, nodes: range, level: int, least: float) -> list[int]:
        """Return those nodes of the newest level whose children are foreseen to be in the draft."""
        if not nodes or level == self._most_levels or self._left == 0:
            return []
        likeliest = sorted(nodes, key=self._reach.__getitem__, reverse=True)[: self._record.width]
        rate = self._record.chances[0]
        # The likeliest node always goes on: what is left to be drawn is best drawn below it.
        worthy = [node for node in likeliest[1:] if self._reach[node] * rate >= least]
        return sorted([likeliest[0], *worthy])
