"""What a reader of a report must know of how it came to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from outrider.bench.base import OWN, PLAIN, Case, Record
from outrider.bench.log import Log
from outrider.bench.plan import Plan, TurnKey


def find_notes(plan: Plan, log: Log, ended_after: float | None) -> tuple[str, ...]:
    """Return what is to be said; `ended_after` are the minutes after which time ran out."""
    return (
        *_time(plan, log, ended_after),
        *_filled(plan),
        *_apart(log.records),
    )


def _time(plan: Plan, log: Log, ended_after: float | None) -> Iterator[str]:
    if ended_after is None:
        return
    groups = sum(len(plan.groups(case.batch)) for case in plan.cases)
    yield (
        f"Time ran out after {ended_after:g} minutes, with {len(log.records)} of "
        f"{plan.repeats * groups} turns taken. The same command again goes on."
    )


def _filled(plan: Plan) -> Iterator[str]:
    """Say where a task has fewer prompts than a batch has places."""
    tasks = Counter(prompt.task for prompt in plan.prompts)
    for batch in dict.fromkeys(case.batch for case in plan.cases):
        short = [task for task, count in tasks.items() if count % batch]
        if short:
            yield (
                f"Batch {batch}: some prompts stand in a batch twice or in two batches, for the "
                f"prompts of {', '.join(short)} do not fill it."
            )


def _apart(records: list[Record]) -> Iterator[str]:
    """Name the cases that were not measured side by side with plain decoding.

    One turn so is what an interruption leaves, and says nothing.
    """
    plain = {
        _place(record): record.run
        for record in records
        if (record.case.engine, record.case.drafter) == (OWN, PLAIN)
    }
    apart: Counter[str] = Counter()
    for record in records:
        apart[record.case.label] += plain.get(_place(record), record.run) != record.run
    for label, count in apart.items():
        if count > 1:
            yield f"{label} was measured in another run than plain decoding, not beside it."


def _place(record: Record) -> TurnKey:
    """Return where in the order of turns a record is, whoever made it."""
    case = record.case
    return replace(
        TurnKey.of(record), case=Case("", temperature=case.temperature, batch=case.batch)
    )
