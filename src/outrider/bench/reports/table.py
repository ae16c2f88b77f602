"""A report on a terminal: a table for each temperature and batch, and what limits each case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outrider.bench.base import Report, Row
from outrider.bench.reports.columns import TERMINAL, TERMINAL_CHANGED, Column, known
from outrider.bench.reports.grids import CHANGED_ANSWERS, changed_rows, differences, reasons
from outrider.bench.reports.outline import Setting, settings, title
from outrider.bench.reports.summary import equality, findings

_INDENT = (0, 0, 0, 2)
Pairs = Sequence[tuple[str, str]]


def terminal_table(report: Report) -> RenderableType:
    """Return what a terminal shows; it fits 100 columns, and names are shown as they are."""
    parts = [part for setting in settings(report) for part in _setting(setting)]
    return Group(*parts, *_failures(report), *_lines(equality(report)), *_notes(report))


def _setting(setting: Setting) -> Iterator[RenderableType]:
    rows = setting.overall or setting.by_task
    yield _table(setting.title, TERMINAL, rows)
    yield from _lines(findings(setting))
    yield from _pairs("what limits it:", reasons(rows))
    changed = changed_rows(setting)
    if changed:
        yield _table(CHANGED_ANSWERS, TERMINAL_CHANGED, changed)
    yield from _pairs("not identical:", differences(setting))
    yield Text()


def _table(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    shown = known(columns, rows)
    table = Table(title=Text(title, "bold"), title_justify="left")
    table.add_column("drafter", min_width=12, overflow="fold")
    for column in shown:
        table.add_column(column.header, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(_text(row.case.label), *(column.show(row) for column in shown))
    return table


def _failures(report: Report) -> Iterator[RenderableType]:
    pairs = [
        (
            f"{failure.case.label}, {title(failure.case.temperature, failure.case.batch).lower()}",
            "\n".join(filter(None, (failure.error, failure.advice))),
        )
        for failure in report.failures
    ]
    yield from _pairs("failed:", pairs)


def _notes(report: Report) -> Iterator[RenderableType]:
    return _lines([f"note: {note}" for note in report.notes])


def _lines(texts: Sequence[str]) -> Iterator[RenderableType]:
    return (_text(text) for text in texts)


def _pairs(heading: str, pairs: Pairs) -> Iterator[RenderableType]:
    if not pairs:
        return
    yield Text(heading)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(max_width=30, overflow="fold")
    grid.add_column(overflow="fold")
    for name, text in pairs:
        grid.add_row(_text(name), _text(text))
    yield Padding(grid, _INDENT)


def _text(text: str) -> Text:
    """Return words as they are; what would drive the terminal, as a log may hold, is replaced."""
    return Text("".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in text))
