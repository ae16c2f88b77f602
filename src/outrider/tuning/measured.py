"""What `outrider tune` found of a model on this machine, in a few words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outrider.engine.costs import PassCosts
from outrider.profile import Profile, profiles_of
from outrider.tuning.tally import DrafterResult
from outrider.tuning.tune import best_drafter

_CONTEXT = 64  # tokens, as the first table of `outrider tune` has them
_ROWS = (4, 8, 16)


@dataclass(frozen=True, slots=True)
class Measured:
    """One tuning run of a model: how it was run, what drafters gained, and what rows cost."""

    dtype: str
    numerics: str
    passes: str
    date: str
    speedups: tuple[tuple[str, float], ...]
    """Over plain decoding, by drafter, the best first; without those that failed."""
    best: str
    """The drafter to use, "none" if none gained enough."""
    row_costs: tuple[tuple[int, float], ...]
    """Time of a pass over so many rows, over that of one row."""

    @classmethod
    def of(cls, profile: Profile) -> Measured:
        """Sum up a profile; raises KeyError, TypeError or ValueError for one that is odd inside."""
        results = [_result(row) for row in profile.results]
        gains = [(row.drafter, row.speedup) for row in results if row.error is None]
        costs, subject = PassCosts.from_dict(profile.passes), profile.subject
        one = costs.seconds(1, _CONTEXT)
        return cls(
            dtype=subject.dtype,
            numerics=subject.numerics,
            passes=subject.passes,
            date=profile.measured.partition("T")[0],
            speedups=tuple(sorted(gains[1:], key=lambda gain: -gain[1])),  # the first is plain
            best=best_drafter(results),
            row_costs=tuple((n, costs.seconds(n, n * _CONTEXT) / one) for n in _ROWS),
        )

    def __str__(self) -> str:
        gains = ", ".join(f"{drafter} {speedup:.2f}x" for drafter, speedup in self.speedups)
        best = self.best if self.best != "none" else "none, as plain decoding was as fast"
        rows = ", ".join(f"{cost:.2f}x for {count}" for count, cost in self.row_costs)
        return f"best drafter {best} ({gains or 'no other was tried'}); rows cost {rows}"

    @property
    def setting(self) -> str:
        """How the model was run, and when."""
        return f"{self.dtype}, {self.passes}, {self.numerics} numerics, {self.date}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self) | {
            "speedups": dict(self.speedups),
            "row_costs": {str(rows): cost for rows, cost in self.row_costs},
        }


def measured_here(model: str) -> Sequence[Measured]:
    """Return what was measured of a model on this machine, the latest first."""
    return [Measured.of(profile) for profile in profiles_of(model)]


def _result(row: Any) -> DrafterResult:
    known = {name: value for name, value in row.items() if name != "identical"}
    return DrafterResult(**known | {"differences": tuple(row["differences"])})
