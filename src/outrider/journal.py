"""An append-only file of records that survives being stopped at any byte.

The first line says what the records are and what they were made with; then follows one record a
line, as JSON. A record is there once its line is whole: what a killed run left of its last line is
cut off when the next run goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from outrider.errors import LoadError, OptionError

Record = Mapping[str, Any]
T = TypeVar("T")

_FORMAT = 1
_BLOCK = 1 << 16


class Journal:
    """A journal open for going on; a context manager that closes the file."""

    def __init__(self, path: Path, kind: str, made_with: Record) -> None:
        """Begin a journal, or go on with the one at `path`.

        `made_with` are plain values. Raises OptionError for a file that is something else, or was
        made with something else (the first difference is named), or cannot be written.
        """
        self.path = path
        self._header = _line({"kind": kind, "format": _FORMAT, "made_with": made_with})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise OptionError(f"{str(path)!r} cannot be written: {error.strerror}") from error
        try:
            self._go_on(kind, made_with)
        except BaseException:
            self._file.close()
            raise

    def append(self, record: Record) -> None:
        """Add a record; once this returns, no end of the process loses it."""
        self._file.write(_line(record))
        self._file.flush()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def _go_on(self, kind: str, made_with: Record) -> None:
        whole = _whole_length(self._file)
        self._file.seek(0)
        if whole:
            header = self._file.readline()
            found = _header_of(header, kind)
            if found is None:
                raise OptionError(f"{str(self.path)!r} is there already, and holds no {kind}")
            if len(header) == whole:  # no record was made yet: it may as well be made otherwise
                whole = 0
            else:
                _require_same(found, made_with, f"the {kind} in {str(self.path)!r}")
        elif not self._header.startswith(self._file.read(len(self._header))):
            raise OptionError(f"{str(self.path)!r} is there already, and holds no {kind}")
        self._file.truncate(whole)
        if not whole:
            self._file.write(self._header)
            self._file.flush()


def read_journal(path: Path, kind: str, parse: Callable[[Record], T]) -> Iterator[T]:
    """Read the records of a journal one by one; what a killed run left of a line is passed over.

    `parse` may raise KeyError, TypeError or ValueError for a record that is not one. Raises
    LoadError, with file and line.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise LoadError(f"cannot read the {kind} in {str(path)!r}: {error.strerror}") from error
    with file:
        if _header_of(file.readline(), kind) is None:
            raise LoadError(f"{str(path)!r} holds no {kind}")
        for number, line in enumerate(file, 2):
            if not line.endswith(b"\n"):
                return
            try:
                record = parse(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise LoadError(f"{path}:{number} is damaged: {reason}") from error
            yield record


def journal_header(path: Path, kind: str) -> Record | None:
    """Return what the journal at `path` was made with, None for a file that is none of the kind."""
    try:
        with path.open("rb") as file:
            return _header_of(file.readline(_BLOCK), kind)
    except OSError:
        return None


def parse_ids(values: object) -> tuple[int, ...]:
    """Return the token ids of a record; raises TypeError for anything else."""
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise TypeError("expected a list of token ids")
    return tuple(values)


def _line(values: Record) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _header_of(line: bytes, kind: str) -> Record | None:
    """Return what a journal of this kind was made with, None for any other line."""
    try:
        values = json.loads(line)
        is_known = values["kind"] == kind and values["format"] == _FORMAT
        made_with: Record = values["made_with"]
    except (KeyError, TypeError, ValueError):
        return None
    return made_with if is_known and isinstance(made_with, dict) else None


def _require_same(found: Record, made_with: Record, name: str) -> None:
    wanted: Record = json.loads(_line(made_with))  # as a reader will see it
    for option in sorted({*found, *wanted}):
        theirs, ours = (
            repr(values[option]) if option in values else "its default"
            for values in (found, wanted)
        )
        if theirs != ours:
            raise OptionError(
                f"{name} were made with {option} {theirs}, not {ours}: go on as they were made, "
                "or name another file"
            )


def _whole_length(file: IO[bytes]) -> int:
    """Return where the last whole line ends, looking from the end of the file."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _BLOCK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
