"""What a log comes to: the report of a benchmark, finished or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from outrider.bench.base import Failure, Report, Row
from outrider.bench.figures import build_rows, plain_of
from outrider.bench.log import Log
from outrider.bench.losses import Findings, with_losses
from outrider.bench.notes import find_notes
from outrider.bench.reasons import why
from outrider.bench.table import tables


def read_outcome(folder: Path) -> Report:
    """Return the report of what the log in a folder holds; nothing is loaded or measured.

    Raises LoadError for a folder without a log, and OptionError for one that holds nothing yet.
    """
    log = Log.read(folder)
    return build_report(log, log.failures)


def build_report(log: Log, failures: Sequence[Failure], ended_after: float | None = None) -> Report:
    """Return the report of a log. A case that failed has no rows.

    `ended_after` are the minutes after which time ran out, None if it did not.
    """
    setup, plan = log.setup, log.setup.plan
    failed = {failure.case for failure in failures}
    kept = replace(plan, cases=tuple(case for case in plan.cases if case not in failed))
    return Report(
        target=setup.target,
        workload=setup.workload,
        prompts=len(plan.prompts),
        tasks=plan.tasks,
        max_new_tokens=plan.max_new_tokens,
        repeats=plan.repeats,
        command=setup.command,
        started=log.started,
        machine=setup.machine,
        rows=with_losses(
            _explained(log, build_rows(kept, log.records, tables(log.costs))),
            kept,
            log.records,
            Findings(log.judged, log.divergences, setup.held),
        ),
        costs=tuple(log.costs),
        failures=_told_once(failures),
        versions=log.versions,
        notes=(*setup.passes, *find_notes(kept, log.records, ended_after), *setup.notes),
    )


def _explained(log: Log, rows: Sequence[Row]) -> tuple[Row, ...]:
    """Say of each row what limits it."""
    found = {(row.case, row.task): row for row in rows}
    return tuple(
        replace(
            row,
            why=why(
                row,
                found.get((plain_of(row.case), row.task)),
                [point for point in log.costs if point.held == row.case.held],
            ),
        )
        for row in rows
    )


def _told_once(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Return the failures without those that say the same of the same case in another setting."""
    found: dict[tuple[str, str], Failure] = {}
    for failure in failures:
        found.setdefault((failure.case.label, failure.error), failure)
    return tuple(found.values())
