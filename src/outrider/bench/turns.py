"""The turns of a benchmark: every case at every group of prompts, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from outrider.bench.base import Case, Failure, Record, Runner
from outrider.bench.log import Log
from outrider.bench.pace import Pace, Progress
from outrider.bench.plan import Plan, Round, Turn, process_of
from outrider.engine.measure import Clock
from outrider.errors import OutriderError

Build: TypeAlias = Callable[[Case], Runner]

WARM_UP_TOKENS = 8


class OutOfTime(Exception):
    """The time that was given is over; raised between two rounds of turns."""


@dataclass(slots=True)
class TurnTaker:
    """Takes the turns of a plan that are not in the log yet, and logs them."""

    plan: Plan
    log: Log
    build: Build
    """Gives a case its runner; what it raises fails the case."""
    clock: Clock = time.perf_counter
    max_seconds: float | None = None
    progress: Progress = lambda _: None
    failures: dict[Case, Failure] = field(default_factory=dict)
    _runners: dict[Case, Runner] = field(default_factory=dict)
    _deadline: float | None = None
    _pace: Pace = field(init=False)

    def run(self) -> bool:
        """Take all turns; return whether there was time for them.

        A case that cannot be loaded or fails is left out from there on, and told of in `failures`.
        """
        if self.max_seconds is not None:
            self._deadline = self.clock() + self.max_seconds
        self._pace = Pace((turn.case for turn in self._all_turns()), self.log.records)
        try:
            self._take_all()
        except OutOfTime:
            return False
        finally:
            self._close(list(self._runners))
        return True

    def _all_turns(self) -> list[Turn]:
        """Return the turns that are still to be taken."""
        return [
            turn
            for repeat in range(self.plan.repeats)
            for cases in self.plan.settings()
            for one in self.plan.rounds(cases, repeat)
            for turn in self._pending(one)
        ]

    def _pending(self, one: Round) -> list[Turn]:
        return [
            turn
            for turn in one.turns
            if turn.key not in self.log.done and turn.case not in self.failures
        ]

    def _take_all(self) -> None:
        """Keep what was loaded through all repeats: of some peers it took minutes."""
        for shift in self.plan.shifts():
            self._take_shift(shift)
            self._close([case for case in shift.cases if process_of(case) is not None])

    def _take_shift(self, shift: Plan) -> None:
        """Go through the settings once a repeat: an early end leaves something of each."""
        for repeat in range(shift.repeats):
            for cases in shift.settings():
                rounds = list(shift.rounds(cases, repeat))
                self._make_ready(cases, rounds)
                for one in rounds:
                    self._take_round(one)

    def _make_ready(self, cases: Sequence[Case], rounds: Sequence[Round]) -> None:
        """Load and warm up whatever has turns to take: the first passes of a process are slow."""
        waiting = {turn.case for one in rounds for turn in self._pending(one)}
        for case in cases:
            runner = self._runners.get(case)
            if case in waiting and (runner is None or not runner.is_ready):
                self._tell(f"starting {case.label}")
                with self._guarded(case):
                    self._start(case, rounds[0])

    def _start(self, case: Case, first: Round) -> None:
        runner = self._runners.get(case) or self.build(case)
        self._runners[case] = runner
        runner.start()
        group = first.turns[0].group
        tokens = min(WARM_UP_TOKENS, self.plan.max_new_tokens)
        runner.decode([p.ids for p in group.prompts], max_new_tokens=tokens, seed=group.seed)
        self.log.add_versions(_named_versions(case, runner.versions()))

    def _take_round(self, one: Round) -> None:
        for turn in self._pending(one):
            self._tell(f"{turn.case.label}: {turn.group.names[0]}")
            with self._guarded(turn.case):
                self._take(turn)
        is_late = self._deadline is not None and self.clock() >= self._deadline
        if is_late and self._all_turns():
            raise OutOfTime

    def _take(self, turn: Turn) -> None:
        runner, group = self._runners[turn.case], turn.group
        decoded = runner.decode(
            [prompt.ids for prompt in group.prompts],
            max_new_tokens=self.plan.max_new_tokens,
            seed=group.seed,
        )
        record = Record(
            case=turn.case,
            repeat=turn.repeat,
            task=group.task,
            prompts=group.names,
            decoded=decoded,
            peak_memory=runner.peak_memory(),
            run=self.log.run,
        )
        self.log.add_record(record)
        self._pace.finish(record)

    @contextmanager
    def _guarded(self, case: Case) -> Iterator[None]:
        """Do something for a case; if it raises, that is the end of this case and no other."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever it is, the others go on
            self.failures[case] = failure = describe_failure(case, error)
            self.log.add_failure(failure)
            self._pace.give_up(case)
            self._close([case])

    def _close(self, cases: Sequence[Case]) -> None:
        for case in cases:
            runner = self._runners.pop(case, None)
            if runner is not None:
                runner.close()

    def _tell(self, text: str) -> None:
        left = None if self._deadline is None else self._deadline - self.clock()
        self.progress(self._pace.step(text, left))


def _named_versions(case: Case, versions: Mapping[str, str]) -> dict[str, str]:
    """Say whose libraries they are: each peer has its own."""
    return {
        name if name == case.engine else f"{name} ({case.engine})": version
        for name, version in versions.items()
    }


def describe_failure(case: Case, error: Exception) -> Failure:
    """Return what is told of an error: one line, and what would help if the error knows it."""
    advice = getattr(error, "advice", "")
    text = str(getattr(error, "problem", error)).strip() or type(error).__name__
    if not isinstance(error, OutriderError):
        text = f"{type(error).__name__}: {text}"
    return Failure(case, text.split("\n")[0], advice if isinstance(advice, str) else "")
