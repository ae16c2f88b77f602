"""How likely a copied token is to be accepted, learnt while a request is decoded.

The best sign that the text goes on as it did elsewhere is how long the two have already agreed. A
rule of succession is the starting point (an agreement of m tokens goes on with probability
m / (m + 1)); every token the request commits then corrects it, whether or not anything was
drafted there. So drafting stops by itself in a text that only seems to repeat, and takes up again
when copying would have paid.
"""

from __future__ import annotations

HORIZON = 31
"""Most tokens a copy is followed for in one draft."""

_NUM_GROUPS = 8  # agreements of 0, 1, 2-3, 4-7, ..., 64 and more tokens
_PRIOR_TRIALS = 4.0  # tokens the starting value is worth
_MEMORY = 32.0  # older tokens than about this many in a group fade

_LONGEST = 1 << (_NUM_GROUPS - 2)
_GROUP_OF = tuple(matched.bit_length() for matched in range(_LONGEST + 1))


class Survival:
    """Rates at which copied tokens prove right in one request, by length of agreement."""

    __slots__ = ("_rates", "_trials")

    def __init__(self) -> None:
        shortest = (0.0, *(float(1 << group) for group in range(_NUM_GROUPS - 1)))
        self._rates = [matched / (matched + 1.0) for matched in shortest]
        self._trials = [_PRIOR_TRIALS] * _NUM_GROUPS

    def rate(self, matched: int) -> float:
        """Return the probability that the next token is right after `matched` that agreed."""
        return self._rates[_GROUP_OF[min(matched, _LONGEST)]]

    def learn(self, matched: int, *, right: bool) -> None:
        """Take note of whether the token after an agreement of `matched` tokens was right."""
        group = _GROUP_OF[min(matched, _LONGEST)]
        trials = min(self._trials[group] + 1.0, _MEMORY)
        self._trials[group] = trials
        self._rates[group] += (right - self._rates[group]) / trials
