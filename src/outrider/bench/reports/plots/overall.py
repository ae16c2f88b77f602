"""The plots of a whole report: prediction, throughput against batch, and the cost of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import plotly.graph_objects as go

from outrider.bench.base import ALL, CostPoint, Report, Row
from outrider.bench.reports.numbers import milliseconds, speedup, spread
from outrider.bench.reports.outline import kept_answers, kind_of, labels, settings, title
from outrider.bench.reports.palette import RULE, TEXT, Style, styles
from outrider.bench.reports.plots.base import Looks, Plot, figure, hover, look, task_name, whiskers

_TOLERANCE = 0.1
_RATIOS = (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def report_plots(report: Report, looks: Looks) -> tuple[Plot, ...]:
    """Return the plots that have something to show; `looks` has a style for each label."""
    return tuple(_plots(report, looks))


def _plots(report: Report, looks: Looks) -> Iterator[Plot]:
    kept = kept_answers(report.rows)
    predicted = [row for row in kept if row.predicted is not None and row.speedup]
    if predicted:
        yield _prediction(predicted, looks)
    overall = [row for setting in settings(report) for row in setting.overall]
    for temperature in dict.fromkeys(row.case.temperature for row in overall):
        rows = [row for row in overall if row.case.temperature == temperature]
        if len({row.case.batch for row in rows}) > 1:
            yield _throughput(temperature, rows, looks)
    curves = _curves(report.costs)
    if curves:
        yield _cost(curves)


def _prediction(rows: Sequence[Row], looks: Looks) -> Plot:
    names = labels(rows)
    ends = _ends(rows)
    axis = {"range": ends, "ticksuffix": "x"}
    points = [
        _points([r for r in rows if r.case.label == name and (r.task == ALL) == is_whole], looks)
        for is_whole in (False, True)
        for name in names
    ]
    return Plot(
        "Measured and predicted speedup",
        "Large marks are the whole workload, small ones single tasks, of every temperature and "
        f"batch. On the line both agree; the band is {_TOLERANCE:.0%} to either side.",
        figure(
            [*_agreement(ends), *points],
            height=440,
            x={"name": "predicted", **axis},
            y={"name": "measured", **axis},
        ),
        tuple((name, looks[name]) for name in names),
    )


def _ends(rows: Sequence[Row]) -> list[float]:
    """Return where axes begin and end that hold every prediction and every measurement."""
    lows = [min(row.predicted, row.speedup.low) for row in rows if row.predicted and row.speedup]
    highs = [max(row.predicted, row.speedup.high) for row in rows if row.predicted and row.speedup]
    room = 0.06 * (max(highs) - min(lows)) or 0.1
    return [min(lows) - room, max(highs) + room]


def _agreement(ends: Sequence[float]) -> Iterator[go.Scatter]:
    low, high = ends
    less, more = 1 - _TOLERANCE, 1 + _TOLERANCE
    quiet = {"mode": "lines", "hoverinfo": "skip"}
    yield go.Scatter(
        x=[low, high, high, low],
        y=[low * less, high * less, high * more, low * more],
        fill="toself",
        fillcolor=RULE,
        opacity=0.5,
        line={"width": 0},
        **quiet,
    )
    yield go.Scatter(x=[low, high], y=[low, high], line={"color": TEXT, "width": 1}, **quiet)


def _points(rows: Sequence[Row], looks: Looks) -> go.Scatter:
    """Return the marks of one label, of the whole workload or of single tasks."""
    if not rows:
        return go.Scatter()
    style, is_whole = looks[rows[0].case.label], rows[0].task == ALL
    spreads = [row.speedup for row in rows if row.speedup is not None]
    said = [
        f"{row.case.label}, {title(row.case.temperature, row.case.batch)}\n{task_name(row.task)}: "
        f"measured {speedup(row.speedup)}, predicted {speedup(row.predicted)}"
        for row in rows
    ]
    return go.Scatter(
        x=[row.predicted for row in rows],
        y=[one.median for one in spreads],
        mode="markers",
        error_y=whiskers(spreads, style.colour) if is_whole else None,
        marker=look(style, 11)["marker"] if is_whole else look(style, 6)["marker"],
        opacity=1.0 if is_whole else 0.55,
        **hover(said),
    )


def _throughput(temperature: float, rows: Sequence[Row], looks: Looks) -> Plot:
    names = labels(rows)
    batches = sorted({row.case.batch for row in rows})
    return Plot(
        f"Throughput against batch, {kind_of(temperature).lower()}",
        "Tokens per second of all sequences together, over the whole workload.",
        figure(
            [_line([row for row in rows if row.case.label == name], looks) for name in names],
            height=440,
            x={"name": "batch", "type": "log", "tickvals": batches, "showgrid": False},
            y={"name": "tokens/s", "rangemode": "tozero"},
        ),
        tuple((name, looks[name]) for name in names),
    )


def _line(rows: Sequence[Row], looks: Looks) -> go.Scatter:
    rows = sorted(rows, key=lambda row: row.case.batch)
    rates, style = [row.tokens_per_second for row in rows], looks[rows[0].case.label]
    said = [
        f"{row.case.label}\nbatch {row.case.batch}: {spread(rate, '{:.1f}')} tokens/s"
        for row, rate in zip(rows, rates, strict=True)
    ]
    return go.Scatter(
        x=[row.case.batch for row in rows],
        y=[rate.median for rate in rates],
        mode="lines+markers",
        error_y=whiskers(rates, style.colour),
        **look(style),
        **hover(said),
    )


Curves = dict[str, list[tuple[CostPoint, float]]]


def _curves(points: Sequence[CostPoint]) -> Curves:
    """Return points with their cost over one row, by what else they depend on."""
    found: Curves = {}
    singles = {(p.held, p.batch, p.context): p.seconds for p in points if p.rows == 1}
    for point in sorted(points, key=lambda point: point.rows):
        single = singles.get((point.held, point.batch, point.context))
        if single:
            name = f"{point.held}, batch {point.batch}, context {point.context}"
            found.setdefault(name, []).append((point, point.seconds / single))
    return {name: curve for name, curve in found.items() if len(curve) > 1}


def _cost(curves: Curves) -> Plot:
    looks = styles(tuple(curves))
    rows = sorted({point.rows for curve in curves.values() for point, _ in curve})
    return Plot(
        "Cost of rows",
        "Time of a pass of the target over that of a pass over one row of each sequence. The "
        "flatter a curve, the longer the drafts that pay.",
        figure(
            [_curve(name, curve, looks[name]) for name, curve in curves.items()],
            height=440,
            x={"name": "rows of each sequence", "type": "log", "tickvals": rows, "showgrid": False},
            y={
                "name": "over one row",
                "type": "log",
                "tickvals": _RATIOS,
                "ticktext": [f"{one:g}x" for one in _RATIOS],
            },
        ),
        tuple(looks.items()),
    )


def _curve(name: str, curve: Sequence[tuple[CostPoint, float]], style: Style) -> Any:
    said = [
        f"{name}\n{point.rows} rows: {milliseconds(point.seconds)}, {ratio:.2f}x"
        for point, ratio in curve
    ]
    return go.Scatter(
        x=[point.rows for point, _ in curve],
        y=[ratio for _, ratio in curve],
        mode="lines+markers",
        **look(style),
        **hover(said),
    )
