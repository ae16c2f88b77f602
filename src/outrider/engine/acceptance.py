"""How likely drafted tokens are to be accepted, learnt online for each request and drafter.

Everything is conditional: a token is tried when those before it were right, so drafts of any
length count alike. A drafter that gives `chances` of its own has them calibrated, by how often
tokens with such a chance proved right; for any other, acceptance is a matter of depth.

A request starts from what its drafter's pool has learnt in all requests, and soon goes by its own
tokens. A draft that fails is one trial and a draft that holds is many, so one bad round says
little; and a draft that holds against all odds takes the failures before it for another kind of
text, so one good round says much.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.types import ROOT, DraftTree

DEPTHS = 32
"""Depths told apart; those below count as the last one."""

_EDGES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.87, 0.92, 0.96, 0.985)
_BUCKETS = len(_EDGES) + 1
_MOST = 0.995  # nothing is certain

_GUESS, _GUESS_TRIALS = 0.6, 2.0  # of a drafter nobody has seen
_POOL_MEMORY = 200.0  # trials a cell of a pool goes by
_LEVEL_MEMORY = 100.0
_POOL_TRIALS = 4.0  # what the pool's word is worth in a request, of a depth or a chance
_OWN_TRIALS = 2.0  # and what the request's own level is worth at a depth
_MEMORY = 0.97  # what a trial is still worth a token later
_AFTER_TURN = 0.2  # what a failure is still worth once the text has turned


class AcceptancePool:
    """What is known of a drafter over all requests."""

    __slots__ = ("by_chance", "by_depth", "level")

    def __init__(self) -> None:
        self.level = [0.0, 0.0]
        """Tokens that were right, and trials, at any depth."""
        self.by_depth = [[0.0, 0.0] for _ in range(DEPTHS)]
        self.by_chance = [[0.0, 0.0] for _ in range(_BUCKETS)]
        """Tokens that were right, and as many as were expected to be, by chance claimed."""

    def rate(self, depth: int) -> float:
        """Return the conditional acceptance at a depth."""
        right, trials = self.level
        level = (right + _GUESS_TRIALS * _GUESS) / (trials + _GUESS_TRIALS)
        right, trials = self.by_depth[depth]
        return (right + _POOL_TRIALS * level) / (trials + _POOL_TRIALS)

    def ratio(self, bucket: int) -> float:
        """Return by how much chances in a bucket fall short of, or exceed, what they claim."""
        right, expected = self.by_chance[bucket]
        return (right + _GUESS_TRIALS) / (expected + _GUESS_TRIALS)

    def learn_depth(self, depth: int, right: bool) -> None:
        """Count a trial at a depth."""
        _count(self.by_depth[depth], right, 1.0, _POOL_MEMORY)
        _count(self.level, right, 1.0, _LEVEL_MEMORY)

    def learn_chance(self, bucket: int, chance: float, right: bool) -> None:
        """Count a trial of a claimed chance."""
        _count(self.by_chance[bucket], right, chance, _POOL_MEMORY)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain values, ready for JSON."""
        return {
            "level": list(self.level),
            "by_depth": [list(cell) for cell in self.by_depth],
            "by_chance": [list(cell) for cell in self.by_chance],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AcceptancePool:
        """Return the pool that `to_dict` gave; raises KeyError, TypeError or ValueError."""
        pool = cls()
        pool.level = _cell(data["level"])
        pool.by_depth = [_cell(cell) for cell in data["by_depth"]]
        pool.by_chance = [_cell(cell) for cell in data["by_chance"]]
        if len(pool.by_depth) != DEPTHS or len(pool.by_chance) != _BUCKETS:
            raise ValueError(f"acceptance has {DEPTHS} depths and {_BUCKETS} buckets")
        return pool


class Acceptance:
    """What is known of a drafter in one request, on top of its pool."""

    __slots__ = ("_by_chance", "_by_depth", "_pool", "_right", "_trials", "_worth")

    def __init__(self, pool: AcceptancePool) -> None:
        self._pool = pool
        # Trials fade by growing what new ones are worth: no need to touch the old.
        self._worth = 1.0
        self._right = self._trials = 0.0
        self._by_depth = [[0.0, 0.0] for _ in range(DEPTHS)]
        self._by_chance = [[0.0, 0.0] for _ in range(_BUCKETS)]

    def survival(self, depths: int) -> list[float]:
        """Return the probabilities that the first 1, 2, ... tokens of a chain are all accepted."""
        found: list[float] = []
        reached = 1.0
        for depth in range(depths):
            reached *= self._rate(min(depth, DEPTHS - 1))
            found.append(reached)
        return found

    def tree_survival(self, tree: DraftTree) -> list[float]:
        """Return for each node of a tree the probability that it is accepted."""
        if tree.chances is not None:
            return self._calibrated(tree, tree.chances)
        if tree.is_chain:
            return self.survival(len(tree))
        return self._shared_out(tree)

    def learn(self, depth: int, right: bool) -> float:
        """Count a trial at a depth, 0 being the first: whether a child there was accepted.

        Returns how likely that had been thought.
        """
        depth = min(depth, DEPTHS - 1)
        expected = self._rate(depth)
        worth = self._worth
        cell = self._by_depth[depth]
        cell[0] += worth * right
        cell[1] += worth
        self._right += worth * right
        self._trials += worth
        self._pool.learn_depth(depth, right)
        return expected

    def learn_chance(self, chance: float, right: bool) -> float:
        """Count a trial of a node whose conditional chance the drafter had put at `chance`.

        Returns how likely it had been thought.
        """
        bucket = bisect_right(_EDGES, chance)
        expected = self._chance(bucket, chance)
        cell = self._by_chance[bucket]
        cell[0] += self._worth * right
        cell[1] += self._worth * chance
        self._pool.learn_chance(bucket, chance, right)
        return expected

    def turn(self) -> None:
        """Take failures so far for those of another kind of text."""
        lost = (1 - _AFTER_TURN) * (self._trials - self._right)
        self._trials -= lost
        for cell in self._by_depth:
            cell[1] = cell[0] + _AFTER_TURN * (cell[1] - cell[0])
        for cell in self._by_chance:
            cell[1] = min(cell[1], cell[0] + _AFTER_TURN * max(0.0, cell[1] - cell[0]))

    def age(self, tokens: int) -> None:
        """Let trials fade as the request goes on by some tokens."""
        self._worth /= _MEMORY**tokens
        if self._worth > 1e9:
            scale = 1 / self._worth
            for cell in (*self._by_depth, *self._by_chance):
                cell[0] *= scale
                cell[1] *= scale
            self._right *= scale
            self._trials *= scale
            self._worth = 1.0

    def _rate(self, depth: int) -> float:
        worth = self._worth
        word = _POOL_TRIALS * worth
        level = (self._right + word * self._pool.rate(depth)) / (self._trials + word)
        right, trials = self._by_depth[depth]
        word = _OWN_TRIALS * worth
        return min(_MOST, (right + word * level) / (trials + word))

    def _calibrated(self, tree: DraftTree, chances: Sequence[float]) -> list[float]:
        found: list[float] = []
        for chance, parent in zip(chances, tree.parents, strict=True):
            if parent == ROOT:
                claimed, reached = chance, 1.0
            else:
                claimed, reached = conditional(chance, chances[parent]), found[parent]
            found.append(reached * self._chance(bisect_right(_EDGES, claimed), claimed))
        return found

    def _chance(self, bucket: int, claimed: float) -> float:
        right, expected = self._by_chance[bucket]
        word = _OWN_TRIALS * self._worth
        scale = (right + word * self._pool.ratio(bucket)) / (expected + word)
        return min(_MOST, claimed * scale)

    def _shared_out(self, tree: DraftTree) -> list[float]:
        """Split each depth's rate among siblings, each half as likely as the one before."""
        ranks: list[int] = []
        families: dict[int, int] = {}
        for parent in tree.parents:
            ranks.append(families.get(parent, 0))
            families[parent] = ranks[-1] + 1
        depths: list[int] = []
        found: list[float] = []
        for rank, parent in zip(ranks, tree.parents, strict=True):
            depths.append(0 if parent == ROOT else depths[parent] + 1)
            share = 0.5**rank / (2 - 0.5 ** (families[parent] - 1))
            reached = 1.0 if parent == ROOT else found[parent]
            found.append(reached * share * self._rate(min(depths[-1], DEPTHS - 1)))
        return found


def conditional(chance: float, parent: float) -> float:
    """Return the chance of a node given that its parent is accepted."""
    return min(1.0, chance / parent) if parent > 0 else 0.0


def _count(cell: list[float], right: bool, expected: float, memory: float) -> None:
    if cell[1] > memory:
        scale = memory / cell[1]
        cell[0] *= scale
        cell[1] *= scale
    cell[0] += right
    cell[1] += expected


def _cell(data: Sequence[float]) -> list[float]:
    right, expected = (float(value) for value in data)
    if not (right >= 0 and expected >= 0):
        raise ValueError(f"counts are {right} and {expected}; they are at least 0")
    return [right, expected]
