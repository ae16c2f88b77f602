"""What a drafter has brought in truth: the last word on whether it pays.

A forecast may be too hopeful in ways that no model of costs and acceptance sees, such as weights of
the target that a head drives out of the processor's cache. So what rounds with its drafts have
taken is held against what plain decoding would have taken for the same tokens.
"""

from __future__ import annotations

_MEMORY = 0.98  # a round's weight, one round later
_LEAST = 24  # rounds, before there is a verdict
_TOLERANCE = 0.02  # of the time taken: below it a loss is chance
_REST, _MOST_DOUBLINGS = 32, 5


class Ledger:
    """Seconds saved by one drafter's rounds of late; closed while they are lost."""

    __slots__ = ("_closings", "_rounds", "_saved_s", "_spent_s", "_until", "is_closed")

    def __init__(self) -> None:
        self.is_closed = False
        """Whether the drafter is to rest, but for trials."""
        self._saved_s = self._spent_s = 0.0
        self._rounds = self._closings = self._until = 0

    def note(self, at_round: int, saved_s: float, spent_s: float) -> None:
        """Enter a round in which the drafter drafted; a trial that saves time opens the book."""
        if self.is_closed:
            if saved_s > 0:
                self.is_closed = False
                self._saved_s = self._spent_s = 0.0
                self._rounds = 0
            return
        self._rounds += 1
        self._saved_s = _MEMORY * self._saved_s + saved_s
        self._spent_s = _MEMORY * self._spent_s + spent_s
        if self._rounds >= _LEAST and self._saved_s < -_TOLERANCE * self._spent_s:
            self.is_closed = True
            self._until = at_round + (_REST << min(self._closings, _MOST_DOUBLINGS))
            self._closings += 1

    def may_try(self, at_round: int) -> bool:
        """Whether a drafter that rests may be tried again."""
        return not self.is_closed or at_round >= self._until
