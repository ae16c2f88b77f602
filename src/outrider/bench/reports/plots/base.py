"""What all plots share: a plotly figure whose colours are CSS variables of the page.

Labels are escaped here, because plotly reads tags in texts.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from outrider.bench.base import ALL, Spread
from outrider.bench.reports.palette import PANEL, RULE, TEXT, Style

Looks = Mapping[str, Style]
"""A style for each label."""

_LABEL_WIDTH, _LABEL_LINES = 20, 2


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure with what a page puts around it."""

    title: str
    caption: str
    """What is shown, and how to read it."""
    figure: dict[str, Any]
    """As plotly.js takes it: `data` and `layout`, which has a height in pixels."""
    legend: tuple[tuple[str, Style], ...]


def figure(traces: Sequence[Any], *, height: int, x: Any, y: Any, **layout: Any) -> dict[str, Any]:
    """Return a figure of traces with axes `x` and `y`, on a page that lends it colours and width.

    Nothing in it can be dragged or zoomed: a finger that meets it scrolls the page.
    """
    drawn: dict[str, Any] = go.Figure(
        data=list(traces),
        layout={
            "template": "none",
            "height": height,
            "margin": {"l": 8, "r": 16, "t": 8, "b": 8},
            "font": {"family": "system-ui, sans-serif", "size": 13, "color": TEXT},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "showlegend": False,
            "dragmode": False,
            "hoverlabel": {"bgcolor": PANEL, "bordercolor": RULE, "font": {"color": TEXT}},
            "xaxis": _axis(x),
            "yaxis": _axis(y),
            **layout,
        },
    ).to_plotly_json()
    del drawn["layout"]["template"]
    return drawn


def _axis(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "automargin": True,
        "fixedrange": True,
        "gridcolor": RULE,
        "linecolor": RULE,
        "zeroline": False,
        "title": {"text": options.pop("name", ""), "standoff": 8},
        **options,
    }


def level(value: float) -> dict[str, Any]:
    """Return a line from top to bottom at a value of x, over the grid and below the data."""
    ends = {"x0": value, "x1": value, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", "layer": "between", "line": {"color": TEXT, "width": 1.5}, **ends}


def whiskers(values: Sequence[Spread], colour: str) -> dict[str, Any]:
    """Return error bars from the lowest to the highest."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [one.high - one.median for one in values],
        "arrayminus": [one.median - one.low for one in values],
        "color": colour,
        "thickness": 1.5,
        "width": 3,
    }


def look(style: Style, size: int = 9) -> dict[str, Any]:
    """Return how plotly draws a style's marks and lines."""
    return {
        "marker": {"color": style.colour, "symbol": style.symbol, "size": size},
        "line": {"color": style.colour, "dash": style.dash, "width": 2},
    }


def hover(texts: Sequence[str]) -> dict[str, Any]:
    """Return what is said of each point: a line each, as it is."""
    said = [html.escape(text).replace("\n", "<br>") for text in texts]
    return {"hovertext": said, "hovertemplate": "%{hovertext}<extra></extra>"}


def task_name(task: str) -> str:
    """Return what a task is called in plots."""
    return "whole workload" if task == ALL else task


def tick(label: str) -> str:
    """Return a label for an axis, in two short lines at most; a longer one loses its middle."""
    most = _LABEL_WIDTH * _LABEL_LINES - 4
    if len(label) > most:
        label = f"{label[: most // 2]} …{label[-(most // 2) :]}"
    lines = textwrap.wrap(label, _LABEL_WIDTH, break_on_hyphens=False)
    return "<br>".join(html.escape(line) for line in lines)
