"""What a draft of so many nodes brings, known before it is drafted.

A drafter that tells chances of its own says how good a draft is once it is there. Whether to ask
for one, and for how many nodes, is decided before: by what the likeliest, second likeliest, ...
node of its drafts has been worth of late.
"""

from __future__ import annotations

from collections.abc import Sequence

_MEMORY = 24.0  # drafts of a request that its averages go by
_POOL_MEMORY = 200.0
_POOL_DRAFTS = 4.0  # what the word of all requests is worth in one
_FURTHER = 0.9  # a node beyond those seen, next to the one before it


class Gains:
    """The average chance of the first, second, ... likeliest node of a drafter's drafts.

    A request's own averages begin from those of its `pool`, which is of all requests.
    """

    __slots__ = ("_counts", "_means", "_memory", "_pool")

    def __init__(self, pool: Gains | None = None) -> None:
        self._pool = pool
        self._memory = _POOL_MEMORY if pool is None else _MEMORY
        self._means: list[float] = []
        self._counts: list[float] = []

    @property
    def is_known(self) -> bool:
        """Whether any draft has been seen."""
        return bool(self._means) or (self._pool is not None and self._pool.is_known)

    def learn(self, chances: Sequence[float]) -> None:
        """Take note of a draft, by the chances of its nodes, the likeliest first."""
        for place, chance in enumerate(chances):
            if place == len(self._means):
                self._means.append(self._prior(place))
                self._counts.append(0.0 if self._pool is None else _POOL_DRAFTS)
            count = self._counts[place] = min(self._counts[place] + 1.0, self._memory)
            self._means[place] += (chance - self._means[place]) / count
        if self._pool is not None:
            self._pool.learn(chances)

    def first(self, count: int) -> list[float]:
        """Return what the first `count` nodes may be expected to bring; never rising."""
        found: list[float] = []
        lowest = 1.0
        for place in range(count):
            lowest = min(lowest, self._mean(place, lowest))
            found.append(lowest)
        return found

    def _mean(self, place: int, before: float) -> float:
        if place < len(self._means):
            return self._means[place]
        return _FURTHER * before if self._pool is None else self._pool._mean(place, before)

    def _prior(self, place: int) -> float:
        return 0.0 if self._pool is None else self._pool._mean(place, 1.0)

    def to_list(self) -> list[float]:
        """Return the averages as plain values, ready for JSON."""
        return list(self._means)

    @classmethod
    def from_list(cls, means: Sequence[float]) -> Gains:
        """Return the gains of all requests that `to_list` gave; raises TypeError or ValueError."""
        gains = cls()
        gains._means = [float(mean) for mean in means]
        if not all(0 <= mean <= 1 for mean in gains._means):
            raise ValueError("gains are averages of chances, from 0 to 1")
        gains._counts = [_POOL_DRAFTS] * len(gains._means)
        return gains
