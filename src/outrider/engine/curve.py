"""What passes over one number of sequences cost, as a curve over rows that every pass corrects.

A pass takes `level * (shape(rows) + slope * attended)` seconds. The level follows the load of the
machine, the shape says what more rows cost than few, the slope what a long context adds. Each pass
corrects all three, in proportion to how uncertain each is (a Kalman filter that neglects the
correlations): a shape that was guessed gives way at once, one that was measured lets the level
give way, and a pass that took absurdly long moves either only a little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

KNOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)

_ROW_GUESS = 0.01  # what a row adds to the cost of a pass, until passes say otherwise
_GUESSED, _MEASURED = 0.3**2, 0.03**2  # variances of the logarithm of the shape at a knot
_NOISE = 0.1**2  # of the logarithm of the seconds of one pass
_DRIFT = 0.01**2  # what the variance of the level gains with each pass
_SLOPE_GUESS, _SLOPE_MEASURED = 3e-5**2, 1e-5**2
_SURPRISE = 2.5  # deviations beyond which a pass says no more than one so far away
_FADING = 1 / 1500  # a pass's part in forgetting what passes of other sizes cost
_FADING_STEP = 16  # passes that are made up for at a time


def _place(rows: int) -> tuple[int, float]:
    at = max(i for i, knot in enumerate(KNOTS[:-1]) if knot <= rows)
    return at, (rows - KNOTS[at]) / (KNOTS[at + 1] - KNOTS[at])


_PLACES = ((0, 0.0), *(_place(rows) for rows in range(1, KNOTS[-1] + 1)))


class RowCurve:
    """Seconds of passes by rows and attended tokens; `base` rows are what plain decoding needs."""

    __slots__ = (
        "_age",
        "_curve",
        "_level",
        "_level_var",
        "_prior",
        "_prior_var",
        "_shape",
        "_slope",
        "_slope_var",
        "_var",
        "base",
        "is_known",
        "widest",
    )

    def __init__(self, base: int) -> None:
        self.base = base
        self.is_known = False
        """Whether a pass has ever been timed; until then the level is 1."""
        self.widest = base
        """Most rows of any pass that was timed."""
        self._age = 0
        self._level = 0.0  # a logarithm, as is the shape
        self._level_var = _NOISE
        self._slope, self._slope_var = 0.0, _SLOPE_GUESS
        self._shape = [math.log(max(0.5, 1 + _ROW_GUESS * (knot - base))) for knot in KNOTS]
        self._settle([_GUESSED] * len(KNOTS))

    def _settle(self, variances: Iterable[float]) -> None:
        """Take the shape as it stands for what is known of it beforehand."""
        # The base carries the level by itself.
        self._var = [0.0 if k == self.base else v for k, v in zip(KNOTS, variances, strict=True)]
        self._prior, self._prior_var = list(self._shape), list(self._var)
        self._curve = _rising(self._shape, self._var)

    # -- asking ---------------------------------------------------------------------------------

    def seconds(self, rows: int, attended: float) -> float:
        """Return what a pass is expected to take; it never falls as rows are added."""
        return math.exp(self._level) * (self._relative(rows) + self._slope * attended)

    def _relative(self, rows: int) -> float:
        if rows > KNOTS[-1]:
            return math.exp(self._curve[-1]) * rows / KNOTS[-1]
        at, weight = _PLACES[rows]
        curve = self._curve
        if not weight:
            return math.exp(curve[at])
        return math.exp(curve[at] + weight * (curve[at + 1] - curve[at]))

    # -- learning -------------------------------------------------------------------------------

    def observe(self, rows: int, attended: float, seconds: float) -> None:
        """Correct the curve by a pass."""
        shape = self._relative(rows)
        total = shape + self._slope * attended
        self.widest = max(self.widest, rows)
        if not self.is_known:
            self.is_known = True
            self._level = math.log(seconds / total)
            return
        at, weight = _PLACES[min(rows, KNOTS[-1])]
        share = shape / total
        knots = ((at, share * (1 - weight)), (at + 1, share * weight))
        lean = attended / total
        var = self._var
        spread = self._level_var + lean * lean * self._slope_var + _NOISE
        unsure = sum(part * part * var[k] for k, part in knots)
        spread += unsure
        surprise = math.log(seconds / total) - self._level
        is_guess = unsure > spread / 2  # it is the shape that is wrong then, and it gives way alone
        most = (2 if is_guess else 1) * _SURPRISE * math.sqrt(spread)
        # A pass beyond belief moves the estimates by its limit and makes none of them surer.
        sure = 1.0 if -most <= surprise <= most else 0.0
        pull = max(-most, min(most, surprise)) / spread
        self._level_var += _DRIFT
        if not is_guess:
            self._level += self._level_var * pull
            self._level_var -= sure * self._level_var**2 / spread
            self._slope = max(0.0, self._slope + lean * self._slope_var * pull)
            self._slope_var -= sure * (lean * self._slope_var) ** 2 / spread
        self._age += 1
        if self._age % _FADING_STEP and not unsure:
            return  # a plain pass says nothing of the shape
        self._fade()
        for k, part in knots:
            self._shape[k] += part * var[k] * pull
            var[k] -= sure * (part * var[k]) ** 2 / spread
        self._extend()
        self._curve = _rising(self._shape, var)

    def _extend(self) -> None:
        """Guess that beyond the widest pass a row adds nearly what rows have added so far."""
        last = _PLACES[min(self.widest, KNOTS[-1])]
        at = last[0] + (last[1] > 0)
        cost = math.exp(self._shape[at])
        rise = max(_ROW_GUESS, 0.8 * (cost - 1) / max(1, KNOTS[at] - self.base))
        for k in range(at + 1, len(KNOTS)):
            self._shape[k] = math.log(cost + rise * (KNOTS[k] - KNOTS[at]))

    def _fade(self) -> None:
        """Return a little to what was known beforehand, so that nothing is ruled out for good.

        The surer a knot is, the slower: what passes keep confirming stays.
        """
        var, shape = self._var, self._shape
        part, self._age = _FADING * self._age, 0
        for k, (prior, prior_var) in enumerate(zip(self._prior, self._prior_var, strict=True)):
            if prior_var:
                shape[k] += part * var[k] / prior_var * (prior - shape[k])
                var[k] += part * (prior_var - var[k])

    # -- beginning with what is known -----------------------------------------------------------

    def measure(self, points: Sequence[tuple[int, float, float]], slope: float) -> None:
        """Begin from (rows, attended, seconds) points; `slope` is in seconds per attended token."""
        by_rows: dict[int, list[float]] = {}
        for rows, attended, seconds in points:
            by_rows.setdefault(rows, []).append(max(seconds - slope * attended, 0.1 * seconds))
        known = [(rows, median(found)) for rows, found in sorted(by_rows.items())]
        costs = [_between(known, knot) for knot in KNOTS]
        level = costs[KNOTS.index(self.base)]
        self._shape = [math.log(each / level) for each in costs]
        first, last = known[0][0], known[-1][0]
        self._settle(_MEASURED if first <= knot <= last else _GUESSED for knot in KNOTS)
        self._level, self._level_var, self.is_known = math.log(level), _NOISE, True
        self._slope, self._slope_var = slope / level, _SLOPE_MEASURED
        self.widest = max(self.base, last)

    def doubt(self) -> None:
        """Take what was measured for a rough word: half of it counts, and none of it is sure.

        A machine that was busy for a moment must not keep drafts from being tried.
        """
        guess = RowCurve(self.base)
        self._shape = [
            (rough + prior) / 2 for rough, prior in zip(self._shape, guess._shape, strict=True)
        ]
        self._settle([_GUESSED] * len(KNOTS))
        self._level_var = _GUESSED

    def rebased(self, base: int) -> RowCurve:
        """Return a curve for other numbers of sequences, on the guess that rows alone count."""
        other = RowCurve(base)
        shift = self._curve[KNOTS.index(base)]
        other._shape = [value - shift for value in self._curve]
        other._settle(max(variance, _GUESSED / 4) for variance in self._var)
        other._level, other._level_var = self._level + shift, _GUESSED
        other._slope, other.is_known = self._slope, self.is_known
        other.widest = max(base, self.widest)
        return other

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as plain values."""
        return {
            "base": self.base,
            "level": math.exp(self._level),
            "slope": self._slope,
            "shape": [math.exp(value) for value in self._shape],
            "variance": list(self._var),
            "widest": self.widest,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RowCurve:
        """Return the curve that `to_dict` gave; raises KeyError, TypeError or ValueError."""
        curve = cls(int(data["base"]))
        shape, variances = list(data["shape"]), list(data["variance"])
        if len(shape) != len(KNOTS) or len(variances) != len(KNOTS) or curve.base not in KNOTS:
            raise ValueError(f"a curve over rows has {len(KNOTS)} knots")
        curve._shape = [math.log(value) for value in shape]
        curve._settle(min(_GUESSED, max(_MEASURED, float(each))) for each in variances)
        curve._level, curve.is_known = math.log(data["level"]), True
        curve._slope, curve._slope_var = max(0.0, float(data["slope"])), _SLOPE_MEASURED
        curve.widest = int(data["widest"])
        return curve


def _between(known: Sequence[tuple[int, float]], rows: int) -> float:
    """Return the seconds at a number of rows, on lines between and beyond the known ones."""
    if rows <= known[0][0] or len(known) == 1:
        return known[0][1]
    after = next((i for i, (knot, _) in enumerate(known) if knot >= rows), len(known) - 1)
    (left, low), (right, high) = known[after - 1], known[after]
    # Beyond the known, more rows never cost less.
    rise = (high - low) / (right - left)
    return high + (rows - right) * (max(0.0, rise) if rows > right else rise)


def _rising(values: Sequence[float], variances: Sequence[float]) -> list[float]:
    """Return the nearest values that never fall, each counting by how certain it is."""
    blocks: list[list[float]] = []  # mean, weight, length
    for value, variance in zip(values, variances, strict=True):
        block = [value, 1 / (variance + 1e-9), 1]
        while blocks and blocks[-1][0] > block[0]:
            mean, weight, length = blocks.pop()
            total = weight + block[1]
            block = [(mean * weight + block[0] * block[1]) / total, total, length + block[2]]
        blocks.append(block)
    return [mean for mean, _, length in blocks for _ in range(int(length))]
