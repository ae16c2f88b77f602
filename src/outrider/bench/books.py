"""The records of one case that count, by what they have in common with those of other cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from outrider.bench.base import ALL, Case, Record
from outrider.bench.plan import Plan, TurnKey

_ANY = Case("")


@dataclass(frozen=True, slots=True)
class Book:
    """Records of a case, those of whole repeats if there are any."""

    records: dict[TurnKey, Record]

    @classmethod
    def of(cls, case: Case, plan: Plan, records: Sequence[Record]) -> Book:
        """Pick the records of a case that count."""
        mine = [record for record in records if record.case == case]
        made = Counter(record.repeat for record in mine)
        whole = len(plan.groups(case.batch))
        kept = [record for record in mine if made[record.repeat] == whole]
        return cls({pairing(record): record for record in kept or mine})

    def of_task(self, task: str) -> list[Record]:
        """Return the records of a task."""
        return [record for record in self.records.values() if task in (ALL, record.task)]

    def beside(self, records: Sequence[Record]) -> list[tuple[Record, Record]]:
        """Return those records that this book has one beside, each with it."""
        pairs = ((record, self.records.get(pairing(record))) for record in records)
        return [(record, other) for record, other in pairs if other is not None]


def pairing(record: Record) -> TurnKey:
    """Return what a turn has in common with those of other cases at the same prompts."""
    return replace(TurnKey.of(record), case=_ANY)
