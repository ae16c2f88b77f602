"""The plots of one setting: speedup by task, acceptance by depth, what time goes into."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from outrider.bench.base import Row
from outrider.bench.reports.columns import time_shares
from outrider.bench.reports.numbers import milliseconds, percent, speedup
from outrider.bench.reports.outline import Setting, is_plain, labels
from outrider.bench.reports.palette import PANEL, PARTS, STRIPE, UNDIVIDED, Style
from outrider.bench.reports.plots.base import (
    Looks,
    Plot,
    figure,
    hover,
    level,
    look,
    task_name,
    tick,
    whiskers,
)


def setting_plots(setting: Setting, looks: Looks) -> tuple[Plot, ...]:
    """Return the plots that have something to show; `looks` has a style for each label."""
    plots = (_speedups(setting, looks), _acceptance(setting, looks), _times(setting))
    return tuple(plot for plot in plots if plot is not None)


def _speedups(setting: Setting, looks: Looks) -> Plot | None:
    found = (*setting.overall, *setting.by_task)
    rows = [row for row in found if row.speedup is not None and not is_plain(row.case)]
    names, groups = labels(rows), len({row.task for row in rows})
    if not rows:
        return None
    traces = [_speedup(name, [r for r in rows if r.case.label == name], looks) for name in names]
    return Plot(
        "Speedup by task",
        "Tokens per second over those of outrider's plain decoding, the line at 1x: the median of "
        "the repeats, and from the lowest to the highest.",
        figure(
            traces,
            height=80 + groups * (14 + 12 * len(names)),
            x={"name": "speedup", "ticksuffix": "x"},
            y={"type": "category", "autorange": "reversed", "showgrid": False},
            scattermode="group",
            scattergap=0.2,
            shapes=[*_stripes(groups), level(1)],
        ),
        tuple((name, looks[name]) for name in names),
    )


def _speedup(name: str, rows: Sequence[Row], looks: Looks) -> go.Scatter:
    spreads = [row.speedup for row in rows if row.speedup is not None]
    said = [f"{name}\n{task_name(row.task)}: {speedup(row.speedup)}" for row in rows]
    return go.Scatter(
        x=[one.median for one in spreads],
        y=[html.escape(task_name(row.task)) for row in rows],
        mode="markers",
        orientation="h",
        offsetgroup=html.escape(name),
        error_x=whiskers(spreads, looks[name].colour),
        marker=look(looks[name])["marker"],
        **hover(said),
    )


def _stripes(groups: int) -> Iterator[dict[str, Any]]:
    """Yield a band behind every other group, which keeps the eye in its own."""
    for at in range(0, groups, 2):
        yield {
            "type": "rect",
            "layer": "below",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": at - 0.5,
            "y1": at + 0.5,
            "fillcolor": STRIPE,
            "line": {"width": 0},
        }


def _acceptance(setting: Setting, looks: Looks) -> Plot | None:
    rows = [row for row in setting.overall if row.conditional_acceptance]
    if not rows:
        return None
    deepest = max(len(row.conditional_acceptance) for row in rows)
    return Plot(
        "Acceptance by depth",
        "Conditional acceptance over the whole workload: the share of the tokens proposed at a "
        "depth that were accepted, where the token before them was.",
        figure(
            [_depths(row, looks[row.case.label]) for row in rows],
            height=340,
            x={
                "name": "depth",
                "range": [0.5, deepest + 0.5],
                "dtick": 1 if deepest <= 12 else None,
                "showgrid": False,
            },
            y={"name": "accepted", "range": [0, 1.03], "tickformat": ".0%"},
        ),
        tuple((row.case.label, looks[row.case.label]) for row in rows),
    )


def _depths(row: Row, style: Style) -> go.Scatter:
    depths = range(1, len(row.conditional_acceptance) + 1)
    label = row.case.label
    said = [
        f"{label}\ndepth {depth}: {percent(one)}"
        for depth, one in zip(depths, row.conditional_acceptance, strict=True)
    ]
    return go.Scatter(
        x=list(depths),
        y=list(row.conditional_acceptance),
        mode="lines+markers",
        **look(style),
        **hover(said),
    )


def _times(setting: Setting) -> Plot | None:
    rows = setting.overall
    shares = [time_shares(row) or {"": 1.0} for row in rows]
    if not any(time_shares(row) for row in rows):
        return None
    used = {**PARTS, "": UNDIVIDED}
    kept = [part for part in used if any(part in each for each in shares)]
    return Plot(
        "Where the time goes",
        "Milliseconds for each token over the whole workload, by what they went into; less is "
        "faster.",
        figure(
            [_part(part, used[part], rows, shares) for part in kept],
            height=90 + 38 * len(rows),
            x={"name": "ms a token"},
            y={
                "tickvals": list(range(len(rows))),
                "ticktext": [tick(row.case.label) for row in rows],
                "autorange": "reversed",
                "showgrid": False,
            },
            barmode="stack",
            bargap=0.35,
        ),
        tuple((part or "parts unknown", used[part]) for part in kept),
    )


def _part(
    part: str, style: Style, rows: Sequence[Row], shares: Sequence[Mapping[str, float]]
) -> go.Bar:
    """Return one part of every bar; a share that is not known has no length and says nothing."""
    at = [index for index, each in enumerate(shares) if part in each]
    seconds = [shares[i][part] / rows[i].tokens_per_second.median for i in at]
    said = [
        f"{rows[i].case.label}\n{part or 'all'}: {milliseconds(one)} ({percent(shares[i][part])})"
        for i, one in zip(at, seconds, strict=True)
    ]
    return go.Bar(
        x=[1e3 * one for one in seconds],
        y=at,
        orientation="h",
        marker={
            "color": style.colour,
            "line": {"color": PANEL, "width": 1},
            "pattern": {
                "shape": style.pattern,
                "fillmode": "overlay",
                "fgcolor": PANEL,
                "size": 6,
                "solidity": 0.25,
            },
        },
        **hover(said),
    )
