"""What a benchmark has measured so far, kept in a journal so that a stopped run can go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from outrider.bench.base import Case, CostPoint, Counters, Decoded, PassCount, Record
from outrider.bench.plan import TurnKey
from outrider.journal import Journal, parse_ids, read_journal

FILE = "records.jsonl"
_KIND = "benchmark records"


@dataclass(frozen=True, slots=True)
class _Start:
    """The command was started."""

    when: str


@dataclass(frozen=True, slots=True)
class _Costs:
    """Passes of a target were measured."""

    points: tuple[CostPoint, ...]


@dataclass(frozen=True, slots=True)
class _Versions:
    """A peer told its versions."""

    versions: dict[str, str]


_Entry: TypeAlias = Record | _Start | _Costs | _Versions


@dataclass(slots=True)
class Log:
    """All that was measured, in memory and in a journal; a context manager."""

    journal: Journal
    now: str
    """When this run was started, as an ISO date and time."""
    starts: list[str] = field(default_factory=list)
    """When the runs before it were that measured anything."""
    records: list[Record] = field(default_factory=list)
    costs: list[CostPoint] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    done: set[TurnKey] = field(default_factory=set)
    _has_begun: bool = False

    @classmethod
    def open(cls, folder: Path, made_with: Mapping[str, Any], *, now: str) -> Log:
        """Begin a log in a folder, or go on with the one there; `now` is an ISO date and time.

        Raises OptionError if it was made with something else (the difference is named), and
        LoadError if it is damaged.
        """
        path = folder / FILE
        log = cls(Journal(path, _KIND, made_with), now)
        try:
            for entry in read_journal(path, _KIND, _parse):
                log._take(entry)
        except BaseException:
            log.close()
            raise
        return log

    @property
    def started(self) -> str:
        """When the first run was started."""
        return self.starts[0] if self.starts else self.now

    @property
    def run(self) -> int:
        """How many runs there were before this one."""
        return len(self.starts) - self._has_begun

    def add_record(self, record: Record) -> None:
        """Keep a record."""
        self._add(record, {"record": asdict(record)})

    def add_costs(self, points: Sequence[CostPoint]) -> None:
        """Keep what passes cost."""
        self._add(_Costs(tuple(points)), {"costs": [asdict(point) for point in points]})

    def add_versions(self, versions: Mapping[str, str]) -> None:
        """Keep the versions of a peer."""
        if versions.items() - self.versions.items():
            self._add(_Versions(dict(versions)), {"versions": dict(versions)})

    def close(self) -> None:
        """Close the journal."""
        self.journal.__exit__()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _add(self, entry: _Entry, values: Mapping[str, Any]) -> None:
        if not self._has_begun:  # a run that measured nothing leaves no trace
            self._has_begun = True
            self.journal.append({"start": {"when": self.now}})
            self._take(_Start(self.now))
        self.journal.append(values)
        self._take(entry)

    def _take(self, entry: _Entry) -> None:
        match entry:
            case Record():
                self.records.append(entry)
                self.done.add(TurnKey.of(entry))
            case _Start():
                self.starts.append(entry.when)
            case _Costs():
                self.costs.extend(entry.points)
            case _Versions():
                self.versions.update(entry.versions)


def _parse(values: Mapping[str, Any]) -> _Entry:
    """Read an entry; raises KeyError, TypeError or ValueError."""
    ((kind, content),) = dict(values).items()
    match kind:
        case "start":
            return _Start(content["when"])
        case "costs":
            return _Costs(tuple(CostPoint(**point) for point in content))
        case "versions":
            return _Versions(dict(content))
        case "record":
            return parse_record(content)
    raise ValueError(f"unknown entry {kind!r}")


def parse_record(values: Mapping[str, Any]) -> Record:
    """Read what `asdict` made of a record; raises KeyError, TypeError or ValueError."""
    decoded = values["decoded"]
    found = decoded["counters"]
    return Record(
        **dict(values)
        | {
            "case": Case(**values["case"]),
            "prompts": tuple(values["prompts"]),
            "decoded": Decoded(
                answers=tuple(parse_ids(ids) for ids in decoded["answers"]),
                seconds=float(decoded["seconds"]),
                counters=None if found is None else _parse_counters(found),
            ),
        }
    )


def _parse_counters(values: Mapping[str, Any]) -> Counters:
    lists = {name: tuple(values[name]) for name in ("proposed_at", "attempted_at", "accepted_at")}
    passes = tuple(PassCount(**one) for one in values["passes"])
    return Counters(**dict(values) | lists | {"passes": passes})
