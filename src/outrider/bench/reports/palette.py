"""How a case looks in every plot of a report: its colour, its mark and its line.

Colours are CSS variables, which the page resolves: dark and light pages have their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

TEXT, FAINT, RULE = "var(--text)", "var(--faint)", "var(--rule)"
PANEL, STRIPE = "var(--panel)", "var(--stripe)"

# Seven colours and eight marks: the first 56 cases differ, and neighbours never by colour alone.
_HUES = tuple(f"var(--hue-{at})" for at in range(1, 8))
_MARKS = (
    ("circle", "●"),
    ("square", "■"),
    ("diamond", "◆"),
    ("cross", "✚"),
    ("star", "★"),
    ("triangle-up", "▲"),
    ("x", "✖"),
    ("triangle-down", "▼"),
)
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


@dataclass(frozen=True, slots=True)
class Style:
    """The look of one case, or of one part of a bar."""

    colour: str
    symbol: str = "square"
    """As plotly calls it."""
    mark: str = "■"
    """The symbol as a character, for a legend in HTML."""
    dash: str = "solid"
    pattern: str = ""
    """What a bar is hatched with, as plotly calls it."""


def styles(labels: Sequence[str], plain: Collection[str] = ()) -> dict[str, Style]:
    """Return a style for each label; those in `plain`, by which others are measured, are grey."""
    coloured = [label for label in labels if label not in plain]
    found = {label: _style(at) for at, label in enumerate(coloured)}
    return {label: found.get(label, Style(FAINT, "circle-open", "○", "dash")) for label in labels}


def _style(at: int) -> Style:
    symbol, mark = _MARKS[at % len(_MARKS)]
    return Style(_HUES[at % len(_HUES)], symbol, mark, _DASHES[at % len(_DASHES)])


PARTS = {
    "prompt": Style(_HUES[0]),
    "draft": Style(_HUES[1], mark="▨", pattern="/"),
    "score": Style(_HUES[2]),
    "host": Style(_HUES[3], mark="▧", pattern="\\"),
}
"""What the time of a case goes into."""
UNDIVIDED = Style(FAINT)
"""Time of which the parts are not known."""
