"""Seconds counted by size, so that quantiles can be told without keeping every value."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

EDGES = tuple(m * 10.0**e for e in range(-4, 3) for m in (1, 2, 5))
"""Upper edges in seconds: 0.1 ms, 0.2 ms, 0.5 ms, 1 ms, ... 500 s."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values were at most `EDGES[i]` and above the edge before; the last: beyond all."""

    counts: tuple[int, ...] = (0,) * (len(EDGES) + 1)
    total: float = 0.0
    """All values together, in seconds."""

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """The mean value in seconds, None without any."""
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """Return an edge that `share` of the values do not exceed; None without values.

        Of values beyond all edges no more is known than that: infinity.
        """
        wanted, seen = share * self.count, 0
        for edge, count in zip((*EDGES, float("inf")), self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return edge
        return None


class Tally:
    """Counts values into a histogram."""

    __slots__ = ("_counts", "_total")

    def __init__(self) -> None:
        self._counts = [0] * (len(EDGES) + 1)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        """Count a value."""
        self._counts[bisect_left(EDGES, seconds)] += 1
        self._total += seconds

    def histogram(self) -> Histogram:
        """Return what was counted so far."""
        return Histogram(tuple(self._counts), self._total)
