"""What passes cost by the table that a benchmark begins with, between its points as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from outrider.bench.base import CostPoint

_Line = Sequence[tuple[float, float]]
"""Seconds at rising places."""


class CostTable:
    """Seconds of passes over sequences, rows of each and context, for one type of weights.

    Between points, and beyond them, costs lie on lines. What a longer context adds was measured of
    one sequence, and is added for each: attention reads the context of each by itself.
    """

    def __init__(self, points: Iterable[CostPoint]) -> None:
        """`points` hold at least one of one sequence."""
        found: dict[int, dict[int, dict[float, float]]] = {}
        for point in points:
            rows = (point.computed or point.batch * point.rows) / point.batch
            line = found.setdefault(point.batch, {}).setdefault(point.context, {})
            line[rows] = min(point.seconds, line.get(rows, point.seconds))
        # Of each number of sequences the shortest context, of one the longest as well.
        self._lines: Mapping[int, _Line] = {
            batch: sorted(contexts[min(contexts)].items()) for batch, contexts in found.items()
        }
        self._short, self._long = min(found[1]), max(found[1])
        self._long_line: _Line = sorted(found[1][self._long].items())

    def seconds(self, sequences: int, rows: float, context: float) -> float:
        """Return what a pass takes over so many rows of each sequence, after so many tokens."""
        known = [(float(batch), _at(line, rows)) for batch, line in sorted(self._lines.items())]
        return _at(known, sequences) + sequences * self._added(rows, context)

    def _added(self, rows: float, context: float) -> float:
        """Return what a context adds to the pass of one sequence, next to the short one."""
        if self._long == self._short:
            return 0.0
        whole = max(0.0, _at(self._long_line, rows) - _at(self._lines[1], rows))
        return whole * (context - self._short) / (self._long - self._short)


def tables(points: Iterable[CostPoint]) -> dict[str, CostTable]:
    """Return the table of all weights, by what they are called."""
    found: dict[str, list[CostPoint]] = {}
    for point in points:
        found.setdefault(point.held, []).append(point)
    return {held: CostTable(own) for held, own in found.items()}


def _at(line: _Line, place: float) -> float:
    """Return the seconds at a place: on the line through its neighbours, or through the last two.

    Beyond its ends a line never falls.
    """
    if len(line) == 1:
        return line[0][1]
    last = next((i for i, (known, _) in enumerate(line) if known >= place), len(line) - 1)
    (left, low), (right, high) = line[max(0, last - 1)], line[max(1, last)]
    rise = (high - low) / (right - left)
    if not left <= place <= right:
        rise = max(0.0, rise)
    start, seconds = (right, high) if place > right else (left, low)
    return seconds + rise * (place - start)
