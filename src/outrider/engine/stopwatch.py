"""Where the time of a round goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundSeconds:
    """The seconds of one round."""

    total_s: float
    draft_s: float
    """Spent with drafters: proposals, and what they are told."""
    prefill_s: float
    """Inside the target, on prompts that had passes to themselves."""
    score_s: float
    """Inside the target, on the pass that requests share."""
    pass_s: float
    """That pass as a whole, verification and rollback included."""
    decode_s: float
    """The round without the passes of prompts."""

    @property
    def host_s(self) -> float:
        """Spent neither with drafters nor inside the target."""
        return self.total_s - self.draft_s - self.prefill_s - self.score_s


class Lap:
    """Seconds spent in the bodies that it is entered for, all together."""

    __slots__ = ("_clock", "_started", "seconds")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._clock = clock
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = self._clock()

    def __exit__(self, *exception: object) -> None:
        self.seconds += self._clock() - self._started


class Stopwatch:
    """Takes the time of one round, which begins when it is made."""

    __slots__ = ("_clock", "_started", "drafting", "passing", "prefill_s", "reading", "score_s")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self.drafting = Lap(clock)
        self.reading = Lap(clock)
        """Passes of prompts."""
        self.passing = Lap(clock)
        """The pass that requests share, its verification and rollback."""
        self.prefill_s = self.score_s = 0.0
        """The parts of both that were spent inside the target."""

    def stop(self) -> RoundSeconds:
        """Return the time taken so far."""
        total_s = self._clock() - self._started
        return RoundSeconds(
            total_s=total_s,
            draft_s=self.drafting.seconds,
            prefill_s=self.prefill_s,
            score_s=self.score_s,
            pass_s=self.passing.seconds,
            decode_s=total_s - self.reading.seconds,
        )
