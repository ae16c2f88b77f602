"""What a benchmark has measured so far, kept in a journal so that a stopped run can go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from outrider.bench.base import CostPoint, Divergence, Failure, Judged, Record
from outrider.bench.parse import parse
from outrider.bench.plan import TurnKey
from outrider.bench.setup import Setup
from outrider.errors import OptionError
from outrider.journal import Journal, read_journal

FILE = "records.jsonl"
_KIND = "benchmark records"


@dataclass(frozen=True, slots=True)
class _Start:
    """The command was started."""

    when: str
    setup: Setup


@dataclass(frozen=True, slots=True)
class _Costs:
    """Passes of a target were measured."""

    points: tuple[CostPoint, ...]


@dataclass(frozen=True, slots=True)
class _Versions:
    """A peer told its versions."""

    versions: dict[str, str]


_Entry: TypeAlias = Record | Failure | Judged | Divergence | _Start | _Costs | _Versions


@dataclass(slots=True)
class Log:
    """All that was measured, in memory and in a journal; a context manager."""

    setup: Setup
    """That of this run."""
    now: str
    """When this run was started, as an ISO date and time."""
    journal: Journal | None = None
    """None for a log that is only read."""
    starts: list[str] = field(default_factory=list)
    """When the runs before it were that measured anything."""
    records: list[Record] = field(default_factory=list)
    costs: list[CostPoint] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    done: set[TurnKey] = field(default_factory=set)
    judged: dict[TurnKey, Judged] = field(default_factory=dict)
    """What the target thinks of records, by the turns they are of."""
    divergences: list[Divergence] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    """Those of the last run that measured anything: each run tries again what failed."""
    _has_begun: bool = False

    @classmethod
    def open(cls, folder: Path, made_with: Mapping[str, Any], setup: Setup, *, now: str) -> Log:
        """Begin a log in a folder, or go on with the one there; `now` is an ISO date and time.

        Raises OptionError if it was made with something else (the difference is named), and
        LoadError if it is damaged.
        """
        path = folder / FILE
        log = cls(setup, now, Journal(path, _KIND, made_with))
        try:
            for entry in read_journal(path, _KIND, _parse):
                log._take(entry)
        except BaseException:
            log.close()
            raise
        return log

    @classmethod
    def read(cls, folder: Path) -> Log:
        """Read the log in a folder, with the setup of its last run.

        Raises LoadError for a folder without one, or a damaged one, and OptionError for one that
        holds nothing yet.
        """
        entries = list(read_journal(folder / FILE, _KIND, _parse))
        starts = [entry for entry in entries if isinstance(entry, _Start)]
        if not starts:
            raise OptionError(f"the benchmark in {str(folder)!r} has measured nothing yet")
        log = cls(starts[-1].setup, starts[-1].when)
        for entry in entries:
            log._take(entry)
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

    def add_judged(self, judged: Judged) -> None:
        """Keep what the target thinks of a record."""
        self._add(judged, {"judged": asdict(judged)})

    def add_divergence(self, divergence: Divergence) -> None:
        """Keep how far a model is from the target."""
        self._add(divergence, {"divergence": asdict(divergence)})

    def add_failure(self, failure: Failure) -> None:
        """Keep what went wrong with a case."""
        self._add(failure, {"failure": asdict(failure)})

    def close(self) -> None:
        """Close the journal."""
        if self.journal is not None:
            self.journal.__exit__()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _add(self, entry: _Entry, values: Mapping[str, Any]) -> None:
        assert self.journal is not None, "this log is only read"
        if not self._has_begun:  # a run that measured nothing leaves no trace
            self._has_begun = True
            self.journal.append({"start": {"when": self.now, "setup": self.setup.to_dict()}})
            self._take(_Start(self.now, self.setup))
        self.journal.append(values)
        self._take(entry)

    def _take(self, entry: _Entry) -> None:
        match entry:
            case Record():
                self.records.append(entry)
                self.done.add(TurnKey.of(entry))
            case Judged():
                self.judged[TurnKey.of(entry)] = entry
            case Divergence():
                self.divergences.append(entry)
            case Failure():
                self.failures.append(entry)
            case _Start():
                self.starts.append(entry.when)
                self.failures.clear()
            case _Costs():
                self.costs.extend(entry.points)
            case _Versions():
                self.versions.update(entry.versions)


def _parse(values: Mapping[str, Any]) -> _Entry:
    """Read an entry; raises KeyError, TypeError or ValueError."""
    ((kind, content),) = dict(values).items()
    match kind:
        case "start":
            return parse(_Start, content, kind)
        case "costs":
            return parse(_Costs, {"points": content}, kind)
        case "versions":
            return parse(_Versions, {"versions": content}, kind)
        case "record":
            return parse(Record, content, kind)
        case "judged":
            return parse(Judged, content, kind)
        case "divergence":
            return parse(Divergence, content, kind)
        case "failure":
            return parse(Failure, content, kind)
    raise ValueError(f"unknown entry {kind!r}")
