"""What records add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from outrider.bench.base import Counters, PassCount, Record


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens, seconds and counters of many records together."""

    tokens: int
    seconds: float
    counters: Counters | None
    """None if any of the records has none."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def add_records(records: Iterable[Record]) -> Totals:
    """Add up records, of which there is at least one."""
    decoded = [record.decoded for record in records]
    counters = [one.counters for one in decoded if one.counters is not None]
    return Totals(
        tokens=sum(len(ids) for one in decoded for ids in one.answers),
        seconds=sum(one.seconds for one in decoded),
        counters=add_counters(counters) if len(counters) == len(decoded) else None,
    )


def add_counters(counters: Iterable[Counters]) -> Counters:
    """Add up counters."""
    all_of = list(counters)
    return Counters(
        rounds=sum(one.rounds for one in all_of),
        drafts=sum(one.drafts for one in all_of),
        levels=sum(one.levels for one in all_of),
        proposed=sum(one.proposed for one in all_of),
        accepted=sum(one.accepted for one in all_of),
        proposed_at=add_by_depth(one.proposed_at for one in all_of),
        attempted_at=add_by_depth(one.attempted_at for one in all_of),
        accepted_at=add_by_depth(one.accepted_at for one in all_of),
        prefill_s=sum(one.prefill_s for one in all_of),
        draft_s=sum(one.draft_s for one in all_of),
        score_s=sum(one.score_s for one in all_of),
        host_s=sum(one.host_s for one in all_of),
        passes=_add_passes(one.passes for one in all_of),
    )


def add_by_depth(counts: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Add up counts by depth, of which some end sooner."""
    found: list[int] = []
    for one in counts:
        for depth, count in enumerate(one):
            if depth == len(found):
                found.append(0)
            found[depth] += count
    return tuple(found)


def _add_passes(passes: Iterable[Iterable[PassCount]]) -> tuple[PassCount, ...]:
    found: dict[tuple[int, int], PassCount] = {}
    for one in (each for some in passes for each in some):
        key = (one.sequences, one.rows)
        before = found.get(key, PassCount(*key, count=0, attended=0.0, seconds=0.0))
        found[key] = PassCount(
            *key,
            count=before.count + one.count,
            attended=before.attended + one.attended,
            seconds=before.seconds + one.seconds,
        )
    return tuple(found[key] for key in sorted(found))
