"""The checks of a proof as rows of text: for a terminal, and for a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from outrider.proof.base import CLAIMS, PARTS, Check, Part, Proof, Table

Column = tuple[str, Callable[[Check], str]]


def _count(name: str) -> Callable[[Check], str]:
    return lambda check: f"{check.counts.get(name, 0):,}"


def _accepted(check: Check) -> str:
    """Return how many of the drafted tokens were accepted."""
    accepted, drafted = check.counts.get("accepted", 0), check.counts.get("drafted", 0)
    return f"{accepted:,} of {drafted:,}" if drafted else ""


def _forks(check: Check) -> str:
    """Return how often answers parted, and how much of it rounding explains."""
    ties = sum(fork.is_tie for fork in check.forks)
    return f"{len(check.forks)}, {ties} ties" if check.forks else "0"


_ANSWERS: tuple[Column, ...] = (
    ("answers", _count("answers")),
    ("tokens", _count("tokens")),
    ("accepted", _accepted),
)
_COLUMNS: Mapping[Part, tuple[Column, ...]] = {
    "identity": (*_ANSWERS, ("batched", _count("batched")), ("forks", _forks)),
    "distribution": (
        ("draws", _count("draws")),
        ("accepted", _accepted),
        ("found", lambda check: "; ".join(check.notes)),
    ),
    "rules": (("laws", _count("laws")),),
    "options": (*_ANSWERS, ("changed", _count("changed")), ("forks", _forks)),
}


def proof_tables(proof: Proof) -> dict[Part, Table]:
    """Return a table for each part that has checks."""
    parts = [part for part in PARTS if proof.of_part(part)]
    return {part: _table(part, proof.of_part(part)) for part in parts}


def _table(part: Part, checks: Sequence[Check]) -> Table:
    return Table(
        title=f"{PARTS.index(part) + 1}. {CLAIMS[part]}",
        headers=["check", *(name for name, _ in _COLUMNS[part]), "passed"],
        rows=[
            [
                check.name,
                *(show(check) for _, show in _COLUMNS[part]),
                "yes" if check.passed else "NO",
            ]
            for check in checks
        ],
    )


def findings(proof: Proof) -> list[str]:
    """Return what there is to say beyond the tables: faults, forks, and drafters that were dropped.

    Faults come first.
    """
    lines = [f"fault: {fault}" for check in proof.checks for fault in check.faults]
    lines += [f"fork: {fork}" for fork in sorted(proof.forks, key=lambda fork: fork.is_tie)]
    lines += [f"drafter dropped: {reason}" for reason in proof.dropped]
    lines += [
        f"note: {check.name} drafted nothing, and so shows no more than plain decoding"
        for check in proof.of_part("identity")
        if check.counts.get("answers") and not check.counts.get("drafted")
    ]
    lines += [
        f"note: {note}"
        for check in proof.checks
        if check.part != "distribution"
        for note in check.notes
    ]
    return lines
