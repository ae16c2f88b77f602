"""What the library has to say while a command runs: on stderr, a line each."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from outrider.errors import DrafterWarning


@contextmanager
def chatter() -> Iterator[None]:
    """Show the library's log lines and warnings for the length of a command."""
    logger = logging.getLogger("outrider")
    level, handler = logger.level, logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            _shorten_warnings()
            yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def _shorten_warnings() -> None:
    show_other = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
        if issubclass(category, DrafterWarning):
            typer.echo(f"warning: {message}", err=True)
        else:
            show_other(message, category, *where, **options)

    warnings.showwarning = show
