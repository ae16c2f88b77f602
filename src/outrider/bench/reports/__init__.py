"""Reports of a benchmark: for programs, for a page that shows Markdown, and for a browser."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path

from outrider.bench.base import Report
from outrider.bench.reports.markdown import to_markdown
from outrider.bench.reports.results import RESULTS, read_report, to_document, to_json
from outrider.errors import OptionError
from outrider.files import write_at_once

__all__ = [
    "MARKDOWN",
    "PAGE",
    "RESULTS",
    "page_lacks",
    "read_report",
    "to_document",
    "warn_of_missing",
    "write_reports",
]

MARKDOWN, PAGE = "report.md", "report.html"
_LOGGER = logging.getLogger("outrider")


def page_lacks() -> str | None:
    """Say what to install before `report.html` can be written, None if nothing is missing."""
    if find_spec("plotly") is not None:
        return None
    return f"{PAGE} needs plotly for its plots; install it with: pip install 'outrider[bench]'"


def warn_of_missing() -> None:
    """Say in the log what to install before `report.html` can be written, if anything."""
    missing = page_lacks()
    if missing is not None:
        _LOGGER.warning("%s", missing)


def write_reports(report: Report, folder: Path) -> list[Path]:
    """Write `results.json`, `report.md` and `report.html` into a folder; return their paths.

    Each is replaced whole. Without plotly there is no `report.html`: the log says how to install
    it, and one that an earlier run left is removed, as it would tell of other results. Raises
    OptionError where a file cannot be written.
    """
    pages = {RESULTS: to_json(report), MARKDOWN: to_markdown(report)}
    if page_lacks() is None:
        from outrider.bench.reports.page import to_html

        pages[PAGE] = to_html(report)
    else:
        warn_of_missing()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PAGE).unlink(missing_ok=True)
        return [write_at_once(folder / name, text) for name, text in pages.items()]
    except OSError as error:
        raise OptionError(
            f"cannot write {error.filename or folder}: {error.strerror or error}"
        ) from error
