"""What a proof is made of: the checks that were made, and the verdict they come to."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from outrider.proof.evidence import Evidence

Part: TypeAlias = Literal["identity", "distribution", "rules", "options"]
PARTS: tuple[Part, ...] = get_args(Part)
CLAIMS: Mapping[Part, str] = {
    "identity": "Drafts change no token of what plain decoding says",
    "distribution": "Under the rules that reject, sampled text has the target's distribution",
    "rules": "The rules are exact, by enumeration in rationals",
    "options": "Each sampling option acts on drafted tokens as on plain ones",
}


@dataclass(frozen=True, slots=True)
class Fork:
    """Where an answer parted from plain decoding's, and whether rounding explains it."""

    answer: str
    position: int
    """Of the first other token, counted from 0 in the answer."""
    token: int
    plain_token: int
    margin: float | None = None
    """How far plain decoding preferred its token: in logits, None if nobody knows."""
    noise: float | None = None
    """How far rounding moves two logits against each other there, as measured."""

    @property
    def is_tie(self) -> bool:
        """Whether plain decoding's own margin lies within the measured noise."""
        return self.margin is not None and self.noise is not None and self.margin <= self.noise

    def __str__(self) -> str:
        where = f"{self.answer}: token {self.position} is {self.token}, plain decoding has"
        if self.margin is None or self.noise is None:
            return f"{where} {self.plain_token}"
        kind = "a tie" if self.is_tie else "no tie"
        numbers = f"margin {self.margin:.2g}, noise {self.noise:.2g}"
        return f"{where} {self.plain_token}; {kind}: {numbers}"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked, with its numbers. It passed if nothing speaks against it."""

    part: Part
    name: str
    counts: Mapping[str, int] = field(default_factory=dict)
    """What was done: answers, tokens, tests, draws, laws; of two checks they add up."""
    forks: tuple[Fork, ...] = ()
    faults: tuple[str, ...] = ()
    """What speaks against losslessness, forks aside."""
    notes: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    """Drafters that raised and were dropped, and why: no fault of the decoding."""

    @property
    def passed(self) -> bool:
        """Whether there was no fault, and no fork but floating-point ties."""
        return not self.faults and all(fork.is_tie for fork in self.forks)

    def plus(self, other: Check) -> Check:
        """Return both checks as one: counts added, findings in order, nothing said twice."""
        names = dict.fromkeys((*self.counts, *other.counts))
        return replace(
            self,
            counts={name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in names},
            forks=(*self.forks, *other.forks),
            faults=_once(self.faults, other.faults),
            notes=_once(self.notes, other.notes),
            dropped=_once(self.dropped, other.dropped),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        forks = [asdict(fork) | {"tie": fork.is_tie} for fork in self.forks]
        return asdict(self) | {"forks": forks, "passed": self.passed}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Check:
        """Read what `to_dict` gave; raises KeyError, TypeError or ValueError for anything else."""
        if values["part"] not in PARTS:
            raise ValueError(f"no part of a proof is called {values['part']!r}")
        forks = [{k: v for k, v in fork.items() if k != "tie"} for fork in values["forks"]]
        return cls(
            part=values["part"],
            name=values["name"],
            counts={name: int(count) for name, count in values["counts"].items()},
            forks=tuple(Fork(**fork) for fork in forks),
            **{name: tuple(values[name]) for name in ("faults", "notes", "dropped")},
        )


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of work that ends in a check: what is done again, or not at all, after a stop."""

    key: str
    """Names the unit among those of its run, in every run with the same settings."""
    weight: float
    """What it takes, in about the time of one token of plain decoding."""
    run: Callable[[], Check]


Work: TypeAlias = Generator[Unit, Check, None]
"""Units one after the other; whoever takes one sends back the check it came to."""


@dataclass(frozen=True, slots=True)
class Table:
    """Something that was found out, in rows of text; the first column is words."""

    title: str
    headers: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(Evidence):
    """All that was checked of a target and its drafters on a machine, and the verdict."""

    checks: tuple[Check, ...]

    @property
    def is_proved(self) -> bool:
        """Whether all was done, and every check passed."""
        return bool(self.checks) and not self.was_interrupted and not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def forks(self) -> tuple[Fork, ...]:
        """Every place where an answer parted from plain decoding's."""
        return tuple(fork for check in self.checks for fork in check.forks)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Drafters that raised, and why."""
        return tuple(dict.fromkeys(reason for check in self.checks for reason in check.dropped))

    def count(self, name: str) -> int:
        """Return one of the counts over all checks."""
        return sum(check.counts.get(name, 0) for check in self.checks)

    def of_part(self, part: Part) -> tuple[Check, ...]:
        """Return the checks of one part."""
        return tuple(check for check in self.checks if check.part == part)

    @property
    def verdict(self) -> str:
        """PROVED or NOT PROVED, with the counts, in one line."""
        word = "PROVED" if self.is_proved else "NOT PROVED"
        word += " (interrupted)" if self.was_interrupted else ""
        ties = sum(fork.is_tie for fork in self.forks)
        counts = [
            f"{len(self.failed)} of {len(self.checks)} checks failed",
            f"{self.count('tokens'):,} tokens of {self.count('answers'):,} answers compared",
            f"{len(self.forks)} forks, {ties} of them ties",
            f"{self.count('tests')} tests over {self.count('draws'):,} draws",
            f"{self.count('laws'):,} exact laws",
        ]
        return f"{word}: {'; '.join(counts)}"

    def found(self) -> dict[str, Any]:
        """Return the checks, as plain values."""
        return {"checks": [check.to_dict() for check in self.checks]}


def merged(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Return checks with those of the same part and name made one, in order of the parts."""
    found: dict[tuple[str, str], Check] = {}
    for check in checks:
        key = (check.part, check.name)
        found[key] = found[key].plus(check) if key in found else check
    return tuple(sorted(found.values(), key=lambda check: PARTS.index(check.part)))


def _once(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
