"""`report.md`: a report as it reads on a page that shows Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from outrider.bench.base import Report
from outrider.bench.reports.facts import facts
from outrider.bench.reports.grids import (
    CHANGED_ANSWERS,
    Grid,
    changed_grid,
    cost_grids,
    differences,
    figures_grid,
    glossary,
    parts_grid,
    reasons,
    speed_grid,
    tasks_grid,
    winners_grid,
)
from outrider.bench.reports.outline import Setting, settings, title
from outrider.bench.reports.summary import equality, findings, method


def to_markdown(report: Report) -> str:
    """Return the text of `report.md`."""
    found = settings(report)
    lines = [*_head(report, found[:1])]
    for at, setting in enumerate(found):
        lines += _setting(setting, () if at == 0 else findings(setting))
    lines += [*_costs(report), *_failures(report), *_notes(report), *_glossary(report)]
    return "\n".join(lines).rstrip() + "\n"


def _head(report: Report, first: Sequence[Setting]) -> Iterator[str]:
    yield from (f"# Benchmark of {_text(report.target)}", "")
    yield from _list([*equality(report), *(one for each in first for one in findings(each))])
    yield from _section(winners_grid(report), "##")
    yield from ("## What was measured", "")
    yield from _table(Grid("", ("", ""), facts(report), leads=2))
    yield from (_text(method(report)), "", *_code(report.command), "")


def _setting(setting: Setting, opening: Sequence[str]) -> Iterator[str]:
    yield from (f"## {setting.title}", "")
    yield from _list(opening)
    for grid in (speed_grid(setting), parts_grid(setting)):
        yield from _section(grid)
    why = reasons(setting.overall)
    if why:
        yield from ("### What limits it", "", *_pairs(why))
    yield from _changed(changed_grid(setting))
    yield from _section(tasks_grid(setting))
    yield from _folded(figures_grid(setting))
    different = differences(setting)
    if different:
        yield from ("### Not identical", "", *_pairs(different))


def _changed(grid: Grid) -> Iterator[str]:
    if grid:
        yield from (f"### {grid.caption}", "", CHANGED_ANSWERS, "", *_table(grid))


def _costs(report: Report) -> Iterator[str]:
    grids = cost_grids(report)
    if grids:
        yield from ("## Cost of rows", "")
        yield "A pass of the target by the rows it scores of each sequence, and over one row."
        yield ""
    for grid in grids:
        yield from _section(grid)


def _failures(report: Report) -> Iterator[str]:
    if report.failures:
        yield from ("## Failed", "")
    for failure in report.failures:
        case = failure.case
        where = title(case.temperature, case.batch)
        yield f"- **{_text(case.label)}** ({where}): {_text(failure.error)}"
        if failure.advice:
            yield f"  - {_text(failure.advice)}"
    yield ""


def _notes(report: Report) -> Iterator[str]:
    if report.notes:
        yield from ("## Notes", "", *_list(report.notes))


def _glossary(report: Report) -> Iterator[str]:
    yield from ("## Columns", "")
    yield from _table(Grid("", ("column", "meaning"), glossary(report), leads=2))


def _section(grid: Grid, level: str = "###") -> Iterator[str]:
    if grid:
        yield from (f"{level} {_text(grid.caption)}", "", *_table(grid))


def _folded(grid: Grid) -> Iterator[str]:
    if grid:
        yield from ("<details>", f"<summary>{grid.caption}</summary>", "", *_table(grid))
        yield from ("</details>", "")


def _table(grid: Grid) -> Iterator[str]:
    yield _line(grid.headers)
    yield f"|{'---|' * grid.leads}{'---:|' * (len(grid.headers) - grid.leads)}"
    yield from (_line(row) for row in grid.rows)
    yield ""


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_text(cell) for cell in cells)} |"


def _pairs(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield from (f"- **{_text(name)}**: {_text(text)}" for name, text in pairs)
    yield ""


def _list(texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield from (*(f"- {_text(text)}" for text in texts), "")


def _code(text: str) -> Iterator[str]:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    yield from (f"{fence}console", text, fence)


def _text(text: str) -> str:
    """Return text that stays in its line and its cell, and is shown as it is."""
    escaped = re.sub(r"([\\`*_\[\]<>|~$])", r"\\\1", " ".join(text.split()))
    # At the start of a line these would begin a list or a heading.
    return re.sub(r"^(\d*)([-+#.)])(?=[\s#]|$)", r"\1\\\2", escaped)
