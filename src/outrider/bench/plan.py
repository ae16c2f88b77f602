"""Who decodes what, and in which order: the turns of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from outrider.bench.base import OWN, Case, Judged, Record


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """A prompt as ids, with a name that no other has."""

    name: str
    task: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Prompts of one task that are decoded together, as many as the batch has places."""

    task: str
    prompts: tuple[BenchPrompt, ...]
    seed: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the prompts."""
        return tuple(prompt.name for prompt in self.prompts)


@dataclass(frozen=True, slots=True)
class TurnKey:
    """What tells a turn from all others."""

    case: Case
    repeat: int
    task: str
    prompts: tuple[str, ...]

    @classmethod
    def of(cls, record: Record | Judged) -> TurnKey:
        """Return the key of the turn that a record is of, or what is thought of one."""
        return cls(record.case, record.repeat, record.task, record.prompts)


@dataclass(frozen=True, slots=True)
class Turn:
    """A group to be decoded in one case."""

    case: Case
    repeat: int
    group: Group

    @property
    def key(self) -> TurnKey:
        """What tells it from all others."""
        return TurnKey(self.case, self.repeat, self.group.task, self.group.names)


@dataclass(frozen=True, slots=True)
class Round:
    """The turns of all cases at one group, one after the other."""

    repeat: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Cases and prompts, and how often."""

    cases: tuple[Case, ...]
    prompts: tuple[BenchPrompt, ...]
    repeats: int
    max_new_tokens: int
    most_processes: int | None = None
    """Of peers, that are held loaded at a time; None: all that there are."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of the prompts, in their order."""
        return tuple(dict.fromkeys(prompt.task for prompt in self.prompts))

    @property
    def longest(self) -> int:
        """Most tokens of a prompt and its answer."""
        return max(len(prompt.ids) for prompt in self.prompts) + self.max_new_tokens

    @property
    def processes(self) -> tuple[Case, ...]:
        """The processes of peers, each told by `process_of`."""
        return tuple(dict.fromkeys(filter(None, map(process_of, self.cases))))

    def shifts(self) -> tuple[Plan, ...]:
        """Return plans to be carried out one after the other, none with more than `most_processes`.

        outrider's own cases are in the first.
        """
        processes = self.processes
        most = self.most_processes or len(processes)
        if most >= len(processes):
            return (self,)
        shifts = [(None, *processes[:most])]
        shifts += [processes[i : i + most] for i in range(most, len(processes), most)]
        return tuple(
            replace(self, cases=tuple(case for case in self.cases if process_of(case) in shift))
            for shift in shifts
        )

    def settings(self) -> tuple[tuple[Case, ...], ...]:
        """Return the cases that are compared with each other: those of a temperature and batch."""
        found: dict[tuple[float, int], list[Case]] = {}
        for case in self.cases:
            found.setdefault((case.temperature, case.batch), []).append(case)
        return tuple(tuple(cases) for cases in found.values())

    def groups(self, batch: int) -> tuple[Group, ...]:
        """Return all prompts in groups of `batch`, the tasks in turn as far as they go.

        A task that has no more prompts fills its last group with those from its beginning, for
        what a batch costs depends on how many are in it.
        """
        groups = []
        for task in self.tasks:
            own = [(i, prompt) for i, prompt in enumerate(self.prompts) if prompt.task == task]
            for first in range(0, len(own), batch):
                chosen = [own[(first + i) % len(own)][1] for i in range(batch)]
                groups.append(Group(task, tuple(chosen), seed=own[first][0] * 1000))
        return tuple(sorted(groups, key=lambda group: group.seed))

    def rounds(self, cases: Sequence[Case], repeat: int) -> Iterator[Round]:
        """Yield the rounds of a repeat; who comes first changes from one to the next.

        So a machine whose speed drifts is unfair to nobody.
        """
        groups = self.groups(cases[0].batch)
        for number, group in enumerate(groups, repeat * len(groups)):
            start = number % len(cases)
            order = (*cases[start:], *cases[:start])
            yield Round(repeat, tuple(Turn(case, repeat, group) for case in order))


def process_of(case: Case) -> Case | None:
    """Return what a case has in common with all that its process serves, None if it is ours."""
    return None if case.engine == OWN else Case(case.drafter, case.engine, case.weights)


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, with a number behind each that has occurred before."""
    found: dict[str, None] = {}
    for name in names:
        number, chosen = 1, name
        while chosen in found:
            number += 1
            chosen = f"{name} #{number}"
        found[chosen] = None
    return tuple(found)
