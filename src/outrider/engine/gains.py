"""What a draft of so many levels brings, known before it is drafted.

Whether a model or a head is asked for a draft, and how deep, is decided before it has one: by what
the levels of its drafts have been worth of late, and how many nodes of each were worth a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MEMORY = 24.0  # drafts of a request that its averages go by
_POOL_MEMORY = 200.0
_POOL_DRAFTS = 4.0  # what the word of all requests is worth in one
_GUESS, _GUESS_DRAFTS = 0.6, 3.0  # of a drafter nobody has seen: what a level keeps of the last


@dataclass(frozen=True, slots=True)
class Level:
    """The nodes of a draft at one depth: the tokens they bring on average, and how many there are.

    `tokens` is the probability that any of them is accepted.
    """

    tokens: float
    nodes: float = 1.0


class Gains:
    """Averages over the drafts of one drafter, level by level.

    A request's own begin from those of its `pool`, which is of all requests.
    """

    __slots__ = ("_counts", "_levels", "_memory", "_pool")

    def __init__(self, pool: Gains | None = None) -> None:
        self._pool = pool
        self._memory = _POOL_MEMORY if pool is None else _MEMORY
        self._levels: list[Level] = []
        self._counts: list[float] = []

    @property
    def is_known(self) -> bool:
        """Whether any draft has been seen."""
        return bool(self._levels) or (self._pool is not None and self._pool.is_known)

    def learn(self, levels: Sequence[Level]) -> None:
        """Take note of a draft."""
        if self._pool is not None:
            self._pool.learn(levels)
        for depth, level in enumerate(levels):
            if depth == len(self._levels):
                # One bad draft is no verdict: it is weighed against what was thought before.
                self._levels.append(
                    self._beyond(depth) or Level(_GUESS ** (depth + 1), level.nodes)
                )
                self._counts.append(_GUESS_DRAFTS if self._pool is None else _POOL_DRAFTS)
            count = self._counts[depth] = min(self._counts[depth] + 1.0, self._memory)
            mean = self._levels[depth]
            self._levels[depth] = Level(
                mean.tokens + (level.tokens - mean.tokens) / count,
                mean.nodes + (level.nodes - mean.nodes) / count,
            )

    def first(self, depth: int) -> list[Level]:
        """Return what the first levels may be expected to bring: never more than those before.

        A level that no draft has had is taken to keep as much of the one before as that has kept.
        """
        found: list[Level] = []
        lowest, kept = 1.0, 1.0
        for place in range(depth):
            known = self._at(place) or Level(lowest * kept)
            tokens = min(lowest, known.tokens)
            kept, lowest = tokens / lowest if lowest else 0.0, tokens
            found.append(Level(tokens, known.nodes))
        return found

    def _at(self, depth: int) -> Level | None:
        return self._levels[depth] if depth < len(self._levels) else self._beyond(depth)

    def _beyond(self, depth: int) -> Level | None:
        return None if self._pool is None else self._pool._at(depth)

    def to_list(self) -> list[list[float]]:
        """Return the averages as plain values, ready for JSON."""
        return [[level.tokens, level.nodes] for level in self._levels]

    @classmethod
    def from_list(cls, values: Sequence[Sequence[float]]) -> Gains:
        """Return the gains of all requests that `to_list` gave; raises TypeError or ValueError."""
        gains = cls()
        for tokens, nodes in values:
            if not (0 <= tokens <= 1 and nodes >= 0):
                raise ValueError(f"a level brings {tokens} tokens with {nodes} nodes")
            gains._levels.append(Level(float(tokens), float(nodes)))
        gains._counts = [_POOL_DRAFTS] * len(gains._levels)
        return gains
