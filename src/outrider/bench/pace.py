"""How far a benchmark has come, and how long it will take."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from outrider.bench.base import Case, Record


@dataclass(frozen=True, slots=True)
class Step:
    """What is going on, and how many turns are done of how many."""

    text: str
    done: int = 0
    total: int = 0
    seconds_left: float | None = None


Progress: TypeAlias = Callable[[Step], None]


class Pace:
    """Tells the time left by what turns of each case have taken so far."""

    def __init__(self, turns: Iterable[Case], records: Iterable[Record]) -> None:
        """`turns` are those to come, one case each; `records` are of turns that are done."""
        self._left = Counter(turns)
        self._taken: defaultdict[Case, list[float]] = defaultdict(list)
        self._done = 0
        for record in records:
            self._count(record)

    def finish(self, record: Record) -> None:
        """Count a turn that was taken."""
        self._left[record.case] -= 1
        self._count(record)

    def _count(self, record: Record) -> None:
        self._done += 1
        self._taken[record.case].append(record.decoded.seconds)

    def give_up(self, case: Case) -> None:
        """Leave out the turns of a case that failed."""
        del self._left[case]

    def step(self, text: str, most_seconds: float | None = None) -> Step:
        """Return where the benchmark is; no more than `most_seconds` are left to it."""
        left = self._seconds_left()
        if left is not None and most_seconds is not None:
            left = min(left, max(0.0, most_seconds))
        return Step(text, self._done, self._done + self._left.total(), left)

    def _seconds_left(self) -> float | None:
        """Return the time of the turns to come, None before the first."""
        everything = [seconds for taken in self._taken.values() for seconds in taken]
        if not everything:
            return None
        overall = sum(everything) / len(everything)
        return sum(
            count * (sum(taken) / len(taken) if (taken := self._taken.get(case)) else overall)
            for case, count in self._left.items()
        )
