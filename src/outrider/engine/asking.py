"""Whether drafts are asked for at all in a round: asking takes time, the more the more requests.

Where it takes longer than what comes of it saves, drafters are only asked every so many rounds:
often enough to find out when that changes, and seldom enough to be hardly felt.
"""

from __future__ import annotations

import math

_SHARE = 0.005  # of the time of all rounds: what asking may take while it does not pay
_FARTHEST = 64  # rounds from one that asks to the next
_FIRST = 8  # rounds that ask whatever they show
_SAVED_MEMORY = 0.75
_RISE, _FALL = 0.1, 0.5  # how far a cost that was seen moves the one that is known


class Asking:
    """What it takes to ask for drafts of about so many requests, and what they save.

    Asking is all that a round with drafters asked does and another does not; times are seconds.
    """

    __slots__ = ("_asked", "_asked_s", "_idle_s", "_rested", "_round_s", "_saved_s")

    def __init__(self) -> None:
        self._asked = 0
        self._saved_s: float | None = None
        self._asked_s: float | None = None
        self._idle_s: float | None = None
        self._round_s = 0.0
        self._rested = 0

    @property
    def is_due(self) -> bool:
        """Whether drafters are to be asked in the next round."""
        if self._asked < _FIRST or self._saved_s is None or self._asked_s is None:
            return True
        cost_s = self._asked_s - (self._idle_s or 0.0)
        if cost_s <= self._saved_s or cost_s <= _SHARE * self._round_s:
            return True
        distance = cost_s / (_SHARE * self._round_s) if self._round_s else _FARTHEST
        return self._rested + 1 >= min(_FARTHEST, math.ceil(distance))

    def learn(self, saved_s: float | None, upkeep_s: float, round_s: float) -> None:
        """Take note of a round, and of the part of it that its lookups and the choice took.

        `saved_s` is what its drafts were expected to save; None if none were asked for.
        """
        self._round_s = _toward(self._round_s or None, round_s)
        if saved_s is None:
            self._rested += 1
            self._idle_s = _toward(self._idle_s, upkeep_s)
            return
        self._asked += 1
        self._asked_s = _toward(self._asked_s, upkeep_s)
        # At first drafts are taken to be worth their while, until rounds have shown otherwise.
        known_s = round_s if self._saved_s is None else self._saved_s
        self._saved_s = _SAVED_MEMORY * known_s + (1 - _SAVED_MEMORY) * saved_s
        if self._rested:  # one good round is enough to go on
            self._saved_s = max(self._saved_s, saved_s)
        self._rested = 0


def _toward(known_s: float | None, seen_s: float) -> float:
    """Return what is known after one more round; an interrupted one says little."""
    if known_s is None:
        return seen_s
    likely_s = min(seen_s, 3 * known_s + 1e-4)
    return known_s + (_FALL if likely_s < known_s else _RISE) * (likely_s - known_s)
