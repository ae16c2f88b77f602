"""Which of a node's children turns out to be right: measured, so that shapes can be worked out.

A tree that is drawn has its shape settled before the draw. The best one follows from how often the
first, second, ... child of a node is the one accepted; every tree that was verified tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from outrider.trees.layout import children
from outrider.trees.shape import RANK_CHANCES, TreeShape, sequoia_shape
from outrider.types import DraftTree, TokenIds

_GUESS_TRIALS = 20.0  # what the guess for drafters nobody has measured is worth
_MEMORY = 2000.0
_STEPS = 20  # chances are told apart so finely: each set of them needs a shape of its own


class RankRecord:
    """How often the child of each rank was accepted, over all requests of a drafter."""

    def __init__(self, width: int) -> None:
        """`width` is the most children a node of its trees has."""
        self._guess = RANK_CHANCES[:width]
        self._accepted = [_GUESS_TRIALS * chance for chance in self._guess]
        self._trials = _GUESS_TRIALS

    @property
    def chances(self) -> tuple[float, ...]:
        """The probability that the child of each rank is the accepted one, given its parent is."""
        return tuple(accepted / self._trials for accepted in self._accepted)

    def learn(self, tree: DraftTree, tokens: TokenIds) -> None:
        """Follow the tokens that were committed through a draft."""
        below = children(tree)
        row = 0
        for token in tokens:
            if not below[row]:
                return
            found = [tree.tokens[node] for node in below[row]]
            rank = found.index(token) if token in found else None
            self._count(rank)
            if rank is None:
                return
            row = below[row][rank] + 1

    def _count(self, rank: int | None) -> None:
        if self._trials > _MEMORY:
            self._accepted = [accepted / 2 for accepted in self._accepted]
            self._trials /= 2
        self._trials += 1
        if rank is not None and rank < len(self._accepted):
            self._accepted[rank] += 1

    def shape(self, nodes: int, depth: int) -> TreeShape:
        """Return the best shape of at most so many nodes and levels for what was measured."""
        return _shape(tuple(round(_STEPS * chance) for chance in self.chances), nodes, depth)


@lru_cache(maxsize=512)
def _shape(steps: Sequence[int], nodes: int, depth: int) -> TreeShape:
    # No rank is ruled out, and none is likelier than the one before.
    chances: list[float] = []
    for step in steps:
        chance = max(0.5, step) / _STEPS
        chances.append(min(chance, chances[-1]) if chances else chance)
    return sequoia_shape(chances, nodes, depth)
