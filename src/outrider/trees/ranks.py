"""Which of a node's children turns out to be right: measured, so that trees can be drawn by it.

How many children a node gets is settled before they are drawn. The best tree follows from how often
the first, second, ... child of a node is the one accepted; every tree that was verified tells.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from outrider.trees.layout import children
from outrider.trees.shape import RANK_CHANCES, greedy_chances
from outrider.types import DraftTree, TokenIds

Chances = NDArray[np.float64]

_GUESS_TRIALS = 20.0  # what the guess for drafters nobody has measured is worth
_MEMORY = 2000.0
_STEPS = 20  # chances are told apart so finely: each set of them needs a descent of its own
_BANDS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)


class RankRecord:
    """How often the child of each rank was accepted, over all requests of a drafter.

    Kept for all nodes together, by the highest probability of the law that children were drawn
    from, and by the probability of the child itself; where little is known of a kind of node, it
    is taken to be as nodes are in general.
    """

    def __init__(self, width: int) -> None:
        """`width` is the most children a node of its trees has."""
        self.width = min(width, len(RANK_CHANCES))
        self._all = _Tally(self.width)
        for rank, chance in enumerate(RANK_CHANCES[: self.width]):
            self._all.accepted[rank] = _GUESS_TRIALS * chance
            self._all.trials[rank] = _GUESS_TRIALS
        self._by_peak = [_Tally(self.width) for _ in range(len(_BANDS) + 1)]
        self._by_chance = [_Tally(self.width) for _ in range(len(_BANDS) + 1)]

    @property
    def chances(self) -> tuple[float, ...]:
        """The probability that the child of each rank is the accepted one, given its parent is."""
        return tuple(self._all.rate(rank) for rank in range(self.width))

    def foreseen(self, peaks: Sequence[float]) -> Chances:
        """Return those probabilities [N, width] for laws [N] of these highest probabilities.

        No rank is likelier than the one before.
        """
        rows = [
            [self._rate(self._by_peak[_band(peak)], rank) for rank in range(self.width)]
            for peak in peaks
        ]
        return np.minimum.accumulate(np.array(rows), axis=1)

    def drawn(self, rank: int, chance: float) -> float:
        """Return that probability for a child of this rank that was drawn with this probability."""
        return self._rate(self._by_chance[_band(chance)], rank)

    def descent(self, nodes: int, levels: int) -> Chances:
        """Return the highest chances in a tree of so many levels below a node, its own 1 first.

        There are at most `nodes` of them, in falling order.
        """
        steps = tuple(round(_STEPS * chance) for chance in self.chances)
        return _descent(steps, nodes, levels)

    def learn(self, tree: DraftTree, tokens: TokenIds) -> None:
        """Follow the tokens that were committed through a draft that was drawn."""
        below = children(tree)
        row = 0
        for token in tokens:
            if not below[row]:
                return
            found = [tree.tokens[node] for node in below[row]]
            rank = found.index(token) if token in found else None
            self._count(tree, below[row], rank)
            if rank is None:
                return
            row = below[row][rank] + 1

    def _count(self, tree: DraftTree, siblings: Sequence[int], accepted: int | None) -> None:
        assert tree.q is not None
        law = tree.q[siblings[0]]
        by_peak = self._by_peak[_band(float(law.max()))]
        for rank, node in enumerate(siblings[: self.width]):
            is_right = rank == accepted
            by_chance = self._by_chance[_band(float(law[tree.tokens[node]]))]
            for tally in (self._all, by_peak, by_chance):
                tally.count(rank, is_right)

    def _rate(self, tally: _Tally, rank: int) -> float:
        accepted = tally.accepted[rank] + _GUESS_TRIALS * self._all.rate(rank)
        return accepted / (tally.trials[rank] + _GUESS_TRIALS)


class _Tally:
    """Trials of the child of each rank, and how many were accepted; old ones fade."""

    def __init__(self, width: int) -> None:
        self.accepted = [0.0] * width
        self.trials = [0.0] * width

    def rate(self, rank: int) -> float:
        return self.accepted[rank] / self.trials[rank]

    def count(self, rank: int, is_right: bool) -> None:
        if self.trials[rank] > _MEMORY:
            self.accepted[rank] /= 2
            self.trials[rank] /= 2
        self.trials[rank] += 1
        self.accepted[rank] += is_right


def _band(chance: float) -> int:
    return bisect_right(_BANDS, chance)


@lru_cache(maxsize=512)
def _descent(steps: Sequence[int], nodes: int, levels: int) -> Chances:
    # No rank is ruled out, and none is likelier than the one before.
    chances = np.minimum.accumulate(np.maximum(0.5, steps) / _STEPS)
    return np.array([1.0, *greedy_chances([chances.tolist()] * levels, nodes)])
