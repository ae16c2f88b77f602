"""`report.html`: a report as one file for a browser, plots included; it loads nothing.

Needs plotly (extra `bench`), whose script goes into the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from outrider.bench.base import Failure, Report
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
from outrider.bench.reports.outline import Setting, is_plain, kept_answers, labels, settings, title
from outrider.bench.reports.palette import styles
from outrider.bench.reports.plots import Looks, Plot, report_plots, setting_plots
from outrider.bench.reports.summary import equality, findings, method

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """What the page says of one setting."""

    title: str
    findings: tuple[str, ...]
    speed: Grid
    split: Grid
    changed: Grid
    tasks: Grid
    figures: Grid
    reasons: Pairs
    differences: Pairs
    plots: tuple[Plot, ...]


def to_html(report: Report) -> str:
    """Return the text of `report.html`; what comes from the report is escaped."""
    found = settings(report)
    plain = {row.case.label for row in kept_answers(report.rows) if is_plain(row.case)}
    looks = styles(labels(kept_answers(report.rows)), plain)
    parts = [_part(each, looks, is_first=each is found[0]) for each in found]
    overall = report_plots(report, looks)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    page = environment.from_string(_resource("page.html.j2")).render(
        report=report,
        changes_answer=CHANGED_ANSWERS,
        opening=(*equality(report), *(one for each in found[:1] for one in findings(each))),
        winners=winners_grid(report),
        parts=parts,
        overall=overall,
        costs=cost_grids(report),
        failures=[_failure(failure) for failure in report.failures],
        facts=facts(report),
        method=method(report),
        glossary=glossary(report),
        has_plots=bool(overall) or any(part.plots for part in parts),
        css=Markup(_resource("page.css")),
        script=Markup(_resource("page.js")),
        plotly=Markup(get_plotlyjs()),
    )
    return page + "\n"


def _part(setting: Setting, looks: Looks, *, is_first: bool) -> _Part:
    return _Part(
        title=setting.title,
        findings=() if is_first else findings(setting),  # those stand at the head of the page
        speed=speed_grid(setting),
        split=parts_grid(setting),
        changed=changed_grid(setting),
        tasks=tasks_grid(setting),
        figures=figures_grid(setting),
        reasons=reasons(setting.overall),
        differences=differences(setting),
        plots=setting_plots(setting, looks),
    )


def _failure(failure: Failure) -> tuple[str, str]:
    case = failure.case
    name = f"{case.label}, {title(case.temperature, case.batch).lower()}"
    return name, f"{failure.error}. {failure.advice}" if failure.advice else failure.error


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").rstrip()
