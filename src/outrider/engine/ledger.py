"""What a drafter has brought in truth: the last word on whether it pays.

A forecast may be too hopeful in ways that no model of costs and acceptance sees, such as weights of
the target that a head drives out of the processor's cache. So what rounds with its drafts have
taken is held against what plain decoding would have taken for the same tokens. A drafter may lose
a few rounds before it rests, and after a rest less than one.
"""

from __future__ import annotations

_TOLERANCE = 0.01  # of a round: a smaller loss is chance
_MOST_DOUBLINGS = 5
_PROBATION = 0.5  # rounds that may be lost after a rest


class Ledger:
    """The balance of one drafter, in rounds of plain decoding; closed once too many are lost."""

    __slots__ = ("_allowed", "_balance", "_closings", "_rest", "_until", "is_closed")

    def __init__(self, allowed: float, rest: int) -> None:
        """`allowed` is how many rounds may be lost, and the most that is remembered of a gain;
        `rest` how many go by before the first trial.
        """
        self.is_closed = False
        """Whether the drafter is to rest, but for trials."""
        self._allowed = allowed
        self._rest = rest
        self._balance = 0.0
        self._closings = self._until = 0

    def note(self, at_round: int, saved: float) -> None:
        """Enter a round in which it drafted, and the plain rounds that saved: below 0 if it lost.

        A trial that saves something opens a closed book.
        """
        if self.is_closed:
            if saved <= 0:
                return
            self.is_closed = False
            self._balance = _PROBATION - self._allowed
        self._balance = min(self._allowed, self._balance + saved + _TOLERANCE)
        if self._balance < -self._allowed:
            self.is_closed = True
            self._until = at_round + (self._rest << min(self._closings, _MOST_DOUBLINGS))
            self._closings += 1

    def may_try(self, at_round: int) -> bool:
        """Whether a drafter that rests may be tried again."""
        return not self.is_closed or at_round >= self._until
