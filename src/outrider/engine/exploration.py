"""When a drafter that does not seem to pay is tried all the same."""

from __future__ import annotations

SHARE = 0.005  # of the time decoding has taken so far
LENGTH = 2
"""Most tokens that are drafted to find out what a drafter is worth."""

_NEAREST, _FARTHEST = 16, 1024


class Exploration:
    """One drafter's trials: at growing distances, and never for more than a share of all time."""

    __slots__ = ("_distance", "_next_round", "spent")

    def __init__(self) -> None:
        self.spent = 0.0
        """Seconds that trials have taken beyond plain decoding."""
        self._distance = _NEAREST
        self._next_round = 0

    def is_due(self, at_round: int, cost: float, decode_s: float) -> bool:
        """Whether a trial of so many seconds may be made now, after so much decoding."""
        return at_round >= self._next_round and self.spent + cost <= SHARE * decode_s

    def explore(self, at_round: int, cost: float) -> None:
        """Count a trial."""
        self.spent += cost
        self._next_round = at_round + self._distance
        self._distance = min(_FARTHEST, 2 * self._distance)

    def exploit(self, at_round: int) -> None:
        """Take note that the drafter pays as it is."""
        self._distance = _NEAREST
        self._next_round = at_round + self._distance
