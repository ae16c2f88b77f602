"""A bar of progress on stderr, with the time left; lines where that is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

if TYPE_CHECKING:
    from outrider.bench.pace import Progress as Tell
    from outrider.bench.pace import Step


@contextmanager
def progress_bar() -> Iterator[Tell]:
    """Yield what shows a step.

    It draws only when told to, between turns: a bar that moved by itself would take time from what
    is measured.
    """
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Lines()
        return
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=console,
        auto_refresh=False,
        transient=True,
    )
    task = bar.add_task("", total=None, left="")

    def show(step: Step) -> None:
        bar.update(
            task,
            description=step.text,
            completed=step.done,
            total=step.total or None,
            left=time_left(step.seconds_left),
            refresh=True,
        )

    with bar:
        yield show


class _Lines:
    """Says a line for whatever comes before the turns, and for each tenth of them."""

    def __init__(self) -> None:
        self._last = ""
        self._tenth = -1

    def __call__(self, step: Step) -> None:
        if not step.total or step.text.startswith("starting"):
            heading = step.text.partition(",")[0]
            if heading != self._last:
                typer.echo(heading, err=True)
            self._last = heading
            return
        tenth = 10 * step.done // step.total
        if tenth != self._tenth:
            left = time_left(step.seconds_left)
            typer.echo(f"{step.done} of {step.total} turns{', ' if left else ''}{left}", err=True)
        self._tenth = tenth


def time_left(seconds: float | None) -> str:
    """Return the time left in words, "" if nobody knows."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.0f} s left"
    minutes = round(seconds / 60)
    return f"{minutes} min left" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min left"
