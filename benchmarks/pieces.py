"""Results of a long recipe, piece by piece: what is done is kept, and the rest follows later."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from outrider.journal import Journal, read_journal

Result = dict[str, Any]


class Pieces:
    """Finished pieces of a recipe, in a journal if there is one, under a limit of time."""

    def __init__(
        self, path: Path | None, made_with: Mapping[str, Any], max_minutes: float | None
    ) -> None:
        """Go on with the journal at `path`; raises OptionError for one of another recipe."""
        self._journal = None if path is None else Journal(path, "recipe pieces", made_with)
        self._known: dict[str, Result] = {}
        if path is not None:
            self._known = dict(read_journal(path, "recipe pieces", _read))
        self._deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self.is_over = False
        """Whether a piece was left out for want of time."""

    def has(self, *key: object) -> bool:
        """Whether a piece is done."""
        return _name(key) in self._known

    def once(self, *key: object, work: Callable[[], Result]) -> Result | None:
        """Return what a piece came to, now or earlier; None if time is over before it begins."""
        name = _name(key)
        if name in self._known:
            return self._known[name]
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self.is_over = True
            return None
        found: Result = json.loads(json.dumps(work()))  # as it will be read
        self._known[name] = found
        if self._journal is not None:
            self._journal.append({"piece": name, "found": found})
        return found


def _name(key: tuple[object, ...]) -> str:
    return "/".join(map(str, key))


def _read(record: Mapping[str, Any]) -> tuple[str, Result]:
    return record["piece"], dict(record["found"])
