"""What a reader of a report must know of how it came to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from outrider.bench.base import OWN, PLAIN, Case, Record
from outrider.bench.plan import Plan, TurnKey, process_of


def find_notes(
    plan: Plan, records: Sequence[Record], ended_after: float | None = None
) -> tuple[str, ...]:
    """Return what is to be said; `ended_after` are the minutes after which time ran out.

    `plan` is without the cases that failed.
    """
    return (
        *_unfinished(plan, records, ended_after),
        *_filled(plan),
        *_held(plan),
        *_apart(records),
    )


def _unfinished(plan: Plan, records: Sequence[Record], ended_after: float | None) -> Iterator[str]:
    turns = plan.repeats * sum(len(plan.groups(case.batch)) for case in plan.cases)
    taken = sum(record.case in plan.cases for record in records)
    if taken < turns:
        how = "It was stopped" if ended_after is None else f"Time ran out after {ended_after:g} min"
        yield f"{how}, with {taken} of {turns} turns taken. The same command again goes on."


def _held(plan: Plan) -> Iterator[str]:
    """Say how many processes of peers there are, and which were not held beside plain decoding."""
    processes = len(plan.processes)
    if not processes:
        return
    most = min(processes, plan.most_processes or processes)
    yield (
        f"Peers: {processes} processes, each loaded once a run, {most} held at a time; whoever has "
        "no turn is stopped."
    )
    late = [case for shift in plan.shifts()[1:] for case in shift.cases]
    labels = dict.fromkeys(case.label for case in late if process_of(case) is not None)
    if labels:
        yield (
            f"Not in turns with plain decoding, but after it, so that no more processes are held: "
            f"{', '.join(labels)}."
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


def _apart(records: Sequence[Record]) -> Iterator[str]:
    """Name the cases that were not measured side by side with plain decoding.

    One turn so is what an interruption leaves, and says nothing.
    """
    plain = {
        _place(record): record.run
        for record in records
        if (record.case.engine, record.case.drafter, record.case.model) == (OWN, PLAIN, "")
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
