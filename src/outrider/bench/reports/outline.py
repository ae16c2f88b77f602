"""What a report is told in: its settings, each a temperature and a batch, and the rows of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.bench.base import ALL, OWN, PLAIN, Case, Report, Row


@dataclass(frozen=True, slots=True)
class Setting:
    """The rows that can be compared: those of one temperature and one batch."""

    temperature: float
    batch: int
    rows: tuple[Row, ...]
    changed: tuple[Row, ...] = ()
    """Those that change the answer, of the whole workload and of tasks: they claim nothing."""

    @property
    def title(self) -> str:
        """The setting in words."""
        return title(self.temperature, self.batch)

    @property
    def overall(self) -> tuple[Row, ...]:
        """The rows of the whole workload, one a case."""
        return tuple(row for row in self.rows if row.task == ALL)

    @property
    def by_task(self) -> tuple[Row, ...]:
        """The rows of single tasks."""
        return tuple(row for row in self.rows if row.task != ALL)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks there are rows of, in their order."""
        return tuple(dict.fromkeys(row.task for row in self.by_task))

    @property
    def cases(self) -> tuple[Case, ...]:
        """The cases there are rows of, in their order."""
        return tuple(dict.fromkeys(row.case for row in self.rows))


def title(temperature: float, batch: int) -> str:
    """Return a temperature and a batch in words."""
    return f"{kind_of(temperature)}, batch {batch}"


def kind_of(temperature: float) -> str:
    """Return a temperature in words."""
    return "Greedy" if temperature == 0 else f"Temperature {temperature:g}"


def settings(report: Report) -> tuple[Setting, ...]:
    """Return the settings of a report, by temperature, then batch."""
    found: dict[tuple[float, int], list[Row]] = {}
    for row in report.rows:
        found.setdefault((row.case.temperature, row.case.batch), []).append(row)
    return tuple(
        Setting(*key, kept_answers(rows), tuple(row for row in rows if row.case.changes_answer))
        for key, rows in sorted(found.items())
    )


def kept_answers(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows of cases that leave the answer as it is."""
    return tuple(row for row in rows if not row.case.changes_answer)


def labels(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the labels of the rows' cases, each once: outrider's own first."""
    cases = dict.fromkeys(row.case for row in rows)
    return tuple(dict.fromkeys(one.label for one in sorted(cases, key=lambda c: c.engine != OWN)))


def is_plain(case: Case) -> bool:
    """Whether a case is outrider's plain decoding, which others are measured by."""
    return case.engine == OWN and case.drafter == PLAIN
