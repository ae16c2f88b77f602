"""The numbers of a run step by step: a table for people and programs, and TensorBoard's files."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from outrider.errors import TrainingError
from outrider.training.events import EventFile

Row: TypeAlias = Mapping[str, float | None]

TABLE = "metrics.csv"
STEP = "step"


class MetricsLog:
    """Appends a row a step to `metrics.csv` and to an event file.

    A run that goes on after some step drops the rows of later ones: it will write them again.
    """

    def __init__(self, folder: Path, after: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / TABLE
        self._columns = _keep_rows(path, after)
        self._table = path.open("a", encoding="utf-8", newline="", buffering=1)
        self._events = EventFile(folder, after)

    def write(self, step: int, row: Row) -> None:
        """Append the numbers of a step; raises TrainingError for other columns than before."""
        columns = [STEP, *row]
        writer = csv.writer(self._table, lineterminator="\n")
        if not self._columns:
            self._columns = columns
            writer.writerow(columns)
        if columns != self._columns:
            raise TrainingError(
                f"{TABLE} has the columns {', '.join(self._columns)}; this run has "
                f"{', '.join(columns)}: it is not the run that was begun in this folder"
            )
        writer.writerow([step, *("" if one is None else repr(one) for one in row.values())])
        known = {name: value for name, value in row.items() if value is not None}
        self._events.add(step, known)

    def close(self) -> None:
        """Close both files."""
        self._table.close()
        self._events.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_rows(path: Path) -> list[dict[str, float | None]]:
    """Return the rows of a table, less a last one that was cut; none where there is no file."""
    return [
        {name: float(cell) if cell else None for name, cell in zip(columns, cells, strict=True)}
        for columns, cells in _whole_rows(path)
    ]


def _keep_rows(path: Path, after: int) -> list[str]:
    """Cut the table behind a step; return its columns, none if nothing is left."""
    rows = [(columns, cells) for columns, cells in _whole_rows(path) if int(cells[0]) <= after]
    if not rows:
        path.unlink(missing_ok=True)
        return []
    columns = rows[0][0]
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *(cells for _, cells in rows)])
    os.replace(temporary, path)
    return columns


def _whole_rows(path: Path) -> list[tuple[list[str], list[str]]]:
    """Return columns and cells of every row that was written to its end."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    columns, *rows = csv.reader(lines[:-1]) if len(lines) > 1 else ([],)
    return [
        (columns, cells) for cells in rows if len(cells) == len(columns) and cells[0].isdecimal()
    ]
