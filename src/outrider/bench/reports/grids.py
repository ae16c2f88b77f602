"""The tables of a report as texts, for whatever draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.bench.base import ALL, CostPoint, Report, Row
from outrider.bench.reports.columns import CHANGED, FIGURES, PARTS, SPEED, Column, known
from outrider.bench.reports.numbers import milliseconds, speedup
from outrider.bench.reports.outline import Setting, is_plain, kept_answers, settings
from outrider.bench.reports.summary import winners


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: its caption, headers and rows; the first `leads` columns are words, not figures."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    leads: int = 1

    def __bool__(self) -> bool:
        """Whether there is anything in it besides names."""
        return bool(self.rows) and len(self.headers) > 1


def winners_grid(report: Report) -> Grid:
    """Return the fastest drafter of each setting and task, by temperature, batch and weights."""
    found = settings(report)
    tasks = tuple(dict.fromkeys(task for setting in found for task in setting.tasks))
    rows = tuple(
        (f"{setting.title}, {weights}", *texts)
        for setting in found
        for weights, *texts in winners(setting, (ALL, *tasks))
    )
    headers = ("setting", "whole workload", *tasks)
    return Grid("The fastest drafter", headers, rows, leads=len(headers))


def speed_grid(setting: Setting) -> Grid:
    """Return how fast each case was over the whole workload."""
    return _grid("The whole workload", SPEED, setting.overall)


def parts_grid(setting: Setting) -> Grid:
    """Return what the speed of each case is made of, over the whole workload."""
    rows = [row for row in setting.overall if known(PARTS, [row])]
    return _grid("Where it comes from", PARTS, rows)


CHANGED_ANSWERS = (
    "These change the answer: what they write is not what the target says. They are held against "
    "its plain decoding, which stands first."
)


def changed_rows(setting: Setting) -> tuple[Row, ...]:
    """Return what changes the answer over the whole workload, below plain decoding of the target.

    Empty if nothing does.
    """
    changed = [row for row in setting.changed if row.task == ALL] or list(setting.changed)
    weights = {row.case.weights for row in changed if not row.case.model}
    plain = [row for row in setting.overall or setting.by_task if is_plain(row.case)]
    kept = [row for row in plain if row.case.weights in weights] or plain[:1]
    return (*kept, *changed) if changed else ()


def changed_grid(setting: Setting) -> Grid:
    """Return what changes the answer, how fast it is, and how far from the target."""
    return _grid("What changes the answer", CHANGED, changed_rows(setting))


def tasks_grid(setting: Setting) -> Grid:
    """Return the speedup of each case by task."""
    found = {(row.case, row.task): row.speedup for row in setting.by_task}
    cases = [case for case in setting.cases if not is_plain(case)]
    rows = [
        (case.label, *(speedup(found.get((case, task))) for task in setting.tasks))
        for case in cases
        if any(found.get((case, task)) for task in setting.tasks)
    ]
    return Grid("Speedup by task", ("drafter", *setting.tasks), tuple(rows))


def figures_grid(setting: Setting) -> Grid:
    """Return all figures by task."""
    rows = [row for task in setting.tasks for row in setting.by_task if row.task == task]
    columns = known(FIGURES, rows)
    headers = ("task", "drafter", *(column.header for column in columns))
    texts = tuple((row.task, row.case.label, *_texts(columns, row)) for row in rows)
    return Grid("All figures by task", headers, texts, leads=2)


def cost_grids(report: Report) -> tuple[Grid, ...]:
    """Return what a pass costs by rows, a table for each type of weights."""
    kinds = dict.fromkeys(point.held for point in report.costs)
    return tuple(_costs(kind, [p for p in report.costs if p.held == kind]) for kind in kinds)


def _costs(held: str, points: Sequence[CostPoint]) -> Grid:
    columns = list(dict.fromkeys((point.batch, point.context) for point in points))
    found = {(point.batch, point.context, point.rows): point.seconds for point in points}
    headers = [f"batch {batch}, context {context}" for batch, context in columns]
    rows = tuple(
        (str(rows), *(_cost(found, batch, context, rows) for batch, context in columns))
        for rows in sorted({point.rows for point in points})
    )
    return Grid(f"Time of a pass, {held}", ("rows", *headers), rows)


def _cost(found: dict[tuple[int, int, int], float], batch: int, context: int, rows: int) -> str:
    seconds, single = found.get((batch, context, rows)), found.get((batch, context, 1))
    if seconds is None or rows == 1 or not single:
        return milliseconds(seconds)
    return f"{milliseconds(seconds)} ({seconds / single:.2f}x)"


def _grid(caption: str, columns: Sequence[Column], rows: Sequence[Row]) -> Grid:
    kept = known(columns, rows)
    headers = ("drafter", *(column.header for column in kept))
    return Grid(caption, headers, tuple((row.case.label, *_texts(kept, row)) for row in rows))


def _texts(columns: Sequence[Column], row: Row) -> tuple[str, ...]:
    return tuple(column.show(row) for column in columns)


def reasons(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Return what limits each case, where that is known: its label and the words."""
    return tuple((row.case.label, row.why) for row in rows if row.why)


def differences(setting: Setting) -> tuple[tuple[str, str], ...]:
    """Return each answer that is not plain decoding's, once: the case's label and the words."""
    rows = (*setting.rows, *setting.changed)
    found = ((row.case.label, one) for row in rows for one in row.differences)
    return tuple(dict.fromkeys(found))


def glossary(report: Report) -> tuple[tuple[str, str], ...]:
    """Return the columns that the report shows, each with its meaning."""
    shown = known(FIGURES, kept_answers(report.rows))
    changed = [row for setting in settings(report) for row in changed_rows(setting)]
    used = {column.header: column.meaning for column in (*shown, *known(CHANGED, changed))}
    return (
        ("drafter", "What proposes tokens; none is plain decoding, the same engine without one."),
        *used.items(),
    )
