"""How far to draft, by how many requests share a pass; read where outrider decides and in vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

KEY = "outrider"
"""Where `SuffixProposer` finds its schedule in vLLM's `additional_config`."""


@dataclass(frozen=True, slots=True)
class Span:
    """What is drafted while `first` to `last` requests share a pass."""

    first: int
    last: int
    length: int
    """Most tokens of a draft; 0 is plain decoding."""
    least_chance: float = 0.0
    """A copied token that is less likely than this to be accepted is left out, and what follows."""


Schedule: TypeAlias = tuple[Span, ...]
"""Spans that begin with 1 request and leave no gaps; the last one holds for larger batches, too."""


def longest(schedule: Sequence[Span]) -> int:
    """Return the most tokens that are ever drafted."""
    return max(span.length for span in schedule)


def span_for(schedule: Sequence[Span], requests: int) -> Span:
    """Return the span that a batch falls into."""
    return next((span for span in schedule if requests <= span.last), schedule[-1])


def merged(schedule: Sequence[Span]) -> Schedule:
    """Return the same schedule with neighbours that say the same made one."""
    found: list[Span] = []
    for span in schedule:
        before = found[-1] if found else None
        if before and (before.length, before.least_chance) == (span.length, span.least_chance):
            found[-1] = Span(before.first, span.last, span.length, span.least_chance)
        else:
            found.append(span)
    return tuple(found)


def to_values(schedule: Sequence[Span]) -> list[list[float]]:
    """Return a schedule as plain values, ready for JSON."""
    return [[span.first, span.last, span.length, span.least_chance] for span in schedule]


def from_values(values: Any) -> Schedule:
    """Return the schedule that `to_values` gave; raises TypeError, or ValueError for a gap."""
    found = tuple(Span(int(a), int(b), int(length), float(least)) for a, b, length, least in values)
    expected = 1
    for span in found:
        if span.first != expected or span.last < span.first or span.length < 0:
            raise ValueError(
                f"a draft schedule has [{span.first}, {span.last}, {span.length}]: expected a span "
                f"that begins with {expected} requests, and a length of at least 0"
            )
        expected = span.last + 1
    if not found:
        raise ValueError("a draft schedule is empty: expected a span that begins with 1 request")
    return found
