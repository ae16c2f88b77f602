"""The checks of a proof as rows of text: for a terminal, and for a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from outrider.proof.base import CLAIMS, PARTS, Check, Part, Proof

Column = tuple[str, Callable[[Check], str]]


def _count(name: str) -> Callable[[Check], str]:
    return lambda check: f"{check.counts.get(name, 0):,}"


_ANSWERS: tuple[Column, ...] = (
    ("answers", _count("answers")),
    ("tokens", _count("tokens")),
    ("drafted", _count("drafted")),
    ("accepted", _count("accepted")),
)
_FORKS: tuple[Column, ...] = (
    ("forks", lambda check: str(len(check.forks))),
    ("ties", lambda check: str(sum(fork.is_tie for fork in check.forks))),
)
_COLUMNS: Mapping[Part, tuple[Column, ...]] = {
    "identity": (*_ANSWERS, ("in batches", _count("batched")), *_FORKS),
    "distribution": (
        ("draws", _count("draws")),
        ("drafted", _count("drafted")),
        ("accepted", _count("accepted")),
        ("found", lambda check: "; ".join(check.notes)),
    ),
    "rules": (("laws", _count("laws")),),
    "options": (*_ANSWERS, ("changed", _count("changed")), *_FORKS),
}


def title(part: Part) -> str:
    """Return what a part shows, with its number."""
    return f"{PARTS.index(part) + 1}. {CLAIMS[part]}"


def headers(part: Part) -> list[str]:
    """Return the names of the columns of a part."""
    return ["check", *(name for name, _ in _COLUMNS[part]), "passed"]


def rows(part: Part, checks: Sequence[Check]) -> list[list[str]]:
    """Return a row of text for each check of a part."""
    return [
        [
            check.name,
            *(show(check) for _, show in _COLUMNS[part]),
            "yes" if check.passed else "NO",
        ]
        for check in checks
    ]


def findings(proof: Proof) -> list[str]:
    """Return what there is to say beyond the tables: faults, forks, and drafters that were dropped.

    Faults come first.
    """
    lines = [f"fault: {fault}" for check in proof.checks for fault in check.faults]
    lines += [f"fork: {fork}" for fork in sorted(proof.forks, key=lambda fork: fork.is_tie)]
    lines += [f"drafter dropped: {reason}" for reason in proof.dropped]
    lines += [
        f"note: {note}"
        for check in proof.checks
        if check.part != "distribution"
        for note in check.notes
    ]
    return lines
