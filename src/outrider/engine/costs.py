"""What a round will take: the target's pass over so many rows, and a drafter's proposal.

Both are learnt from every round, begin from what tuning measured where there is that, and belong
to an engine for its life, for all its requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from outrider.engine.curve import RowCurve

_PARTS = ("fixed", "step", "unread")


class PassCosts:
    """Seconds of the target's passes, over rows, batch and context.

    `rows` are those the model computes (`Target.pass_rows`), `attended` the context tokens that
    they look at, all rows together, and `sequences` how many take part. Passes over 1, 2, 3-4,
    5-8, ... sequences have a curve each; one without passes of its own borrows its neighbour's.
    Until anything is known, a pass is guessed to take 1 second, and 1% more for each row.
    """

    def __init__(self) -> None:
        self._curves: dict[int, RowCurve] = {}
        self.is_measured = False
        """Whether the costs began from measurements, of tuning or of an earlier run."""

    def is_known(self, sequences: int = 1) -> bool:
        """Whether passes over about so many sequences have been timed."""
        return _bucket(sequences) in self._curves

    def seconds(self, rows: int, attended: float = 0.0, sequences: int = 1) -> float:
        """Return the expected seconds of a pass."""
        return self.curve(sequences).seconds(rows, attended)

    def observe(self, rows: int, attended: float, seconds: float, sequences: int = 1) -> None:
        """Learn from a pass; one that took no measurable time teaches nothing."""
        if seconds <= 0:
            return
        base = _bucket(sequences)
        if base not in self._curves:
            curve = self.curve(sequences)
            self._curves[base] = curve if curve.base == base else curve.rebased(base)
        self._curves[base].observe(rows, attended, seconds)

    def curve(self, sequences: int) -> RowCurve:
        """Return the curve that passes over so many sequences are judged by."""
        base = _bucket(sequences)
        if base in self._curves:
            return self._curves[base]
        if not self._curves:
            return RowCurve(base)
        smaller = [known for known in self._curves if known < base]
        return self._curves[max(smaller) if smaller else min(self._curves)]

    @classmethod
    def measured(cls, points: Iterable[tuple[int, float, float, int]]) -> PassCosts:
        """Return the costs that fit (rows, attended, seconds, sequences) points best.

        Points with the same rows and sequences but other contexts tell what the context adds.
        """
        groups: dict[int, list[tuple[int, float, float]]] = {}
        for rows, attended, seconds, sequences in points:
            groups.setdefault(_bucket(sequences), []).append((rows, attended, seconds))
        costs = cls()
        costs.is_measured = bool(groups)
        slope = _slope(groups)
        for base, group in groups.items():
            costs._curves[base] = RowCurve(base)
            costs._curves[base].measure(group, slope)
        return costs

    @classmethod
    def glanced(cls, points: Iterable[tuple[int, float, float, int]]) -> PassCosts:
        """Return costs that begin from a few passes, timed once or twice: a rough word."""
        costs = cls.measured(points)
        for curve in costs._curves.values():
            curve.doubt()
        costs.is_measured = False
        return costs

    def to_dict(self) -> dict[str, Any]:
        """Return what is known as plain values, ready for JSON."""
        return {"curves": [curve.to_dict() for _, curve in sorted(self._curves.items())]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PassCosts:
        """Return the costs that `to_dict` gave; raises KeyError, TypeError or ValueError."""
        costs = cls()
        for record in data["curves"]:
            curve = RowCurve.from_dict(record)
            costs._curves[curve.base] = curve
        costs.is_measured = bool(costs._curves)
        return costs


class DraftCosts:
    """Seconds of one drafter's proposals: a fixed part, one a step, and one a token not yet read.

    A step is a token drafted, or a level of a tree; unread are the tokens committed since the
    drafter last proposed, or the whole text for one that has not begun, of all requests it drafts
    for at a time. Proposals for 1, 2, 3-4, 5-8, ... requests have costs of their own. What has not
    been timed is guessed: for other numbers of requests a proposal costs as much next to a pass,
    and before the first one a step costs a tenth of a pass.
    """

    def __init__(self) -> None:
        self._batches: dict[int, _Proposals] = {}

    @property
    def is_known(self) -> bool:
        """Whether a proposal has been timed, here or in an earlier run."""
        return bool(self._batches)

    def knows_of(self, requests: int) -> bool:
        """Whether a proposal for at least an eighth as many requests has been timed."""
        return any(_NEAR * base >= _bucket(requests) for base in self._batches)

    def seconds(self, steps: int, unread: float, pass_seconds: float, requests: int = 1) -> float:
        """Return the expected seconds of a proposal, next to a target whose pass takes those."""
        known = self._batches.get(_bucket(requests))
        parts = self._guess(pass_seconds, requests) if known is None else known.parts
        return sum(x * part for x, part in zip((1, steps, unread), parts, strict=True))

    def observe(
        self, steps: int, unread: int, seconds: float, pass_seconds: float, requests: int = 1
    ) -> None:
        """Learn from a proposal."""
        base = _bucket(requests)
        if base not in self._batches:
            guess = self._guess(pass_seconds, requests)
            self._batches[base] = _Proposals.guessed(guess, pass_seconds)
        self._batches[base].observe(steps, unread, seconds, pass_seconds)

    def _guess(self, pass_seconds: float, requests: int) -> list[float]:
        """Return the parts as the nearest number of requests has them, next to a pass."""
        if not self._batches:
            return [part * pass_seconds for part in _GUESS]
        base = _bucket(requests)
        near = self._batches[min(self._batches, key=lambda known: abs(math.log(known / base)))]
        scale = pass_seconds / near.pass_s if near.pass_s else 1.0
        return [part * scale for part in near.parts]

    def to_dict(self) -> dict[str, Any]:
        """Return what is known as plain values, ready for JSON."""
        batches = [
            {"requests": base} | known.to_dict() for base, known in sorted(self._batches.items())
        ]
        return {"batches": batches}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DraftCosts:
        """Return the costs that `to_dict` gave; raises KeyError, TypeError or ValueError."""
        costs = cls()
        for record in data["batches"]:
            costs._batches[_bucket(int(record["requests"]))] = _Proposals.from_dict(record)
        return costs


_GUESS = (0.0, 0.1, 0.002)  # of a pass: fixed, step, unread token
_SPREAD = (0.05, 1.0, 0.006)
_NEAR = 8


class _Proposals:
    """The parts of what proposals for one number of requests cost, next to passes of `pass_s`.

    They are told apart by how uncertain each is, as in `RowCurve`.
    """

    def __init__(self, parts: Sequence[float], variances: Sequence[float], pass_s: float) -> None:
        self.parts = list(parts)
        self.pass_s = pass_s
        self._var = list(variances)

    @classmethod
    def guessed(cls, parts: Sequence[float], pass_seconds: float) -> _Proposals:
        """Begin from a guess, which gives way to the first proposals."""
        return cls(parts, [(spread * pass_seconds) ** 2 for spread in _SPREAD], pass_seconds)

    def observe(self, steps: int, unread: int, seconds: float, pass_seconds: float) -> None:
        """Learn from a proposal."""
        self.pass_s = pass_seconds
        features = (1, steps, unread)
        expected = sum(x * part for x, part in zip(features, self.parts, strict=True))
        noise = (0.1 * expected + 0.02 * pass_seconds) ** 2 + 1e-18
        spread = noise + sum(x * x * v for x, v in zip(features, self._var, strict=True))
        surprise = seconds - expected
        most = 2.5 * spread**0.5
        sure = 1.0 if -most <= surprise <= most else 0.0
        pull = max(-most, min(most, surprise)) / spread
        for i, x in enumerate(features):
            gain = x * self._var[i]
            self.parts[i] = max(0.0, self.parts[i] + gain * pull)
            # What is known of a drafter ages: by a fiftieth of itself with each proposal.
            self._var[i] += (0.02 * self.parts[i]) ** 2 - sure * gain * gain / spread

    def to_dict(self) -> dict[str, Any]:
        """Return the parts as plain values."""
        named = dict(zip(_PARTS, self.parts, strict=True))
        return named | {"variance": list(self._var), "pass": self.pass_s}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> _Proposals:
        """Return what `to_dict` gave; raises KeyError, TypeError or ValueError."""
        parts = [max(0.0, float(data[name])) for name in _PARTS]
        variances = [max(0.0, float(value)) for value in data["variance"]]
        if len(variances) != len(parts):
            raise ValueError(f"a drafter's costs have {len(parts)} variances")
        return cls(parts, variances, float(data["pass"]))


def _bucket(sequences: int) -> int:
    """Return the power of two that a number of sequences goes with, 256 at most."""
    return min(256, 1 << (sequences - 1).bit_length())


def _slope(groups: Mapping[int, list[tuple[int, float, float]]]) -> float:
    """Return the seconds that one attended token adds, over all points that differ in it alone."""
    top = bottom = 0.0
    for group in groups.values():
        for (rows, attended, seconds), (others, more, longer) in combinations(group, 2):
            if rows == others:
                top += (longer - seconds) * (more - attended)
                bottom += (more - attended) ** 2
    return max(0.0, top / bottom) if bottom else 0.0
