"""`results.json`: a report as programs read it, and as it is read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from outrider.bench.base import Report
from outrider.bench.parse import parse
from outrider.errors import LoadError

RESULTS = "results.json"
_FORMAT = 1


def to_document(report: Report) -> dict[str, Any]:
    """Return a report as plain values with the number of their format, ready for JSON."""
    return {"format": _FORMAT, "report": report.to_dict()}


def to_json(report: Report) -> str:
    """Return the text of `results.json`; raises ValueError for figures that are no numbers."""
    return json.dumps(to_document(report), indent=1, allow_nan=False) + "\n"


def read_report(path: Path) -> Report:
    """Read `results.json`, or the one in a folder.

    Raises LoadError for a file that is missing, damaged or of another format.
    """
    path = path / RESULTS if path.is_dir() else path
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or not {"format", "report"} <= document.keys():
            raise ValueError("it has no format and report")
        if document["format"] != _FORMAT:
            raise ValueError(f"its format is {document['format']}, not {_FORMAT}")
        return parse(Report, document["report"], "report")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LoadError(f"{path} holds no results of a benchmark: {reason}") from error
