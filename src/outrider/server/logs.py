"""Log lines as JSON objects, one a line, on stderr."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

FIELDS = "fields"
"""Attribute of a log record that holds what its line tells besides the message."""

_LOGGERS = ("outrider", "uvicorn.error", "py.warnings")


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object: time, level, message, and the fields it brings."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= getattr(record, FIELDS, {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@contextmanager
def json_logs(stream: TextIO | None = None) -> Iterator[None]:
    """Write what the library and the server have to say as JSON lines, and nothing else."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter())
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.level, logger.propagate) for logger in loggers]
    show, logging_raises = warnings.showwarning, logging.raiseExceptions
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a log that cannot be written ends no answer
    try:
        yield
    finally:
        logging.captureWarnings(False)
        warnings.showwarning, logging.raiseExceptions = show, logging_raises
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
