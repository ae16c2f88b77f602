"""Turns are taken one after the other, logged, and never lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_fakes import NGRAM, PLAIN, SUFFIX, FakeRunner, make_plan, open_log

from outrider.bench.base import Case, Record
from outrider.bench.pace import Step
from outrider.bench.plan import Plan
from outrider.bench.turns import TurnTaker
from outrider.errors import LoadError
from support.simulated import SimulatedClock


class Bench:
    """Takes the turns of a plan with fake runners."""

    def __init__(self, folder: Path, plan: Plan | None = None, **options: Any) -> None:
        self.plan = plan or make_plan()
        self.folder = folder
        self.clock = SimulatedClock()
        self.events: list[str] = []
        self.steps: list[Step] = []
        self.options = options
        self.faults: dict[Case, Callable[[int], None]] = {}
        self.taker: TurnTaker | None = None

    def build(self, case: Case) -> FakeRunner:
        fault = self.faults.get(case, lambda _: None)
        return FakeRunner(case, self.clock, events=self.events, fault=fault)

    def run(self) -> list[Record]:
        with open_log(self.folder) as log:
            self.taker = TurnTaker(
                self.plan,
                log,
                self.build,
                clock=self.clock,
                progress=self.steps.append,
                **self.options,
            )
            self.had_time = self.taker.run()
            return list(log.records)


def test_all_cases_start_before_the_first_turn_and_turns_go_round(tmp_path: Path) -> None:
    bench = Bench(tmp_path, make_plan(PLAIN, SUFFIX, repeats=1))
    bench.run()
    starts = ["start none", "none", "start suffix", "suffix"]  # each is warmed up
    turns = ["none", "suffix", "suffix", "none"]
    assert bench.events == [*starts, *turns, "close none", "close suffix"]


def test_warming_up_is_short_and_not_recorded(tmp_path: Path) -> None:
    bench = Bench(tmp_path, make_plan(PLAIN, tasks=("chat",), repeats=1, tokens=40))
    (record,) = bench.run()
    assert len(record.decoded.answers[0]) == 40
    assert bench.clock.now == 8 + 40


def test_a_record_holds_what_was_decoded_and_memory(tmp_path: Path) -> None:
    plan = make_plan(PLAIN, tasks=("chat", "edit"), repeats=1, tokens=2)
    first, second = Bench(tmp_path, plan).run()
    assert (first.task, first.prompts, first.repeat, first.run) == ("chat", ("a",), 0, 0)
    assert (second.task, second.prompts) == ("edit", ("b",))
    assert (first.peak_memory, second.peak_memory) == (2000, 3000)


class Killed(BaseException):
    """An end that nothing catches."""


@pytest.mark.parametrize("turns", [1, 4, 7, 11])
def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path, turns: int) -> None:
    """Afterwards there are the records of a run that was never stopped, but for their times."""
    whole = Bench(tmp_path / "whole").run()
    stopped = Bench(tmp_path / "stopped")
    taken = 0

    def count(_: int) -> None:
        nonlocal taken
        taken += 1
        if taken == 3 + turns:  # warm-ups come before
            raise Killed

    stopped.faults = dict.fromkeys(stopped.plan.cases, count)
    with pytest.raises(Killed):
        stopped.run()
    resumed = Bench(tmp_path / "stopped").run()
    assert [replace(r, run=0, peak_memory=None) for r in resumed] == [
        replace(r, peak_memory=None) for r in whole
    ]
    assert {r.run for r in resumed} == ({0, 1} if turns > 1 else {0})


def test_a_finished_run_decodes_nothing_again(tmp_path: Path) -> None:
    records = Bench(tmp_path).run()
    again = Bench(tmp_path)
    assert again.run() == records
    assert again.events == []


def test_a_case_that_fails_leaves_the_others_and_is_told_of(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    def fail(decoded: int) -> None:
        if decoded == 2:
            raise ValueError("no such row\nat all")

    bench.faults[SUFFIX] = fail
    records = bench.run()
    assert bench.had_time
    assert bench.taker is not None
    (failure,) = bench.taker.failures.values()
    assert (failure.case, failure.error) == (SUFFIX, "ValueError: no such row")
    counts = {case: sum(r.case == case for r in records) for case in bench.plan.cases}
    assert counts == {PLAIN: 4, SUFFIX: 1, NGRAM: 4}
    assert "close suffix" in bench.events[:-2]


def test_a_case_that_cannot_start_says_what_would_help(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    class MissingError(LoadError):
        problem, advice = "vllm is not installed", "make peers"

    def build(case: Case) -> FakeRunner:
        if case == NGRAM:
            raise MissingError("vllm is not installed; make peers")
        return Bench.build(bench, case)

    bench.build = build  # type: ignore[method-assign]
    bench.run()
    assert bench.taker is not None
    (failure,) = bench.taker.failures.values()
    assert (failure.error, failure.advice) == ("vllm is not installed", "make peers")


def test_a_case_that_failed_is_tried_again_by_the_next_run(tmp_path: Path) -> None:
    broken = Bench(tmp_path)

    def fail(_: int) -> None:
        raise LoadError("not there yet")

    broken.faults[NGRAM] = fail
    assert len(broken.run()) == 8
    assert len(Bench(tmp_path).run()) == 12


def test_time_ends_a_run_after_a_whole_round_of_turns(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_seconds=26.0)  # 12 to warm up, 12 a round
    records = bench.run()
    assert not bench.had_time
    assert [r.case for r in records] == [PLAIN, SUFFIX, NGRAM, SUFFIX, NGRAM, PLAIN]
    rest = Bench(tmp_path, max_seconds=1000.0)
    assert len(rest.run()) == 12
    assert rest.had_time


def test_time_that_ends_with_the_last_turn_ends_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, make_plan(repeats=1), max_seconds=30.0)
    assert len(bench.run()) == 6
    assert bench.had_time


def test_every_setting_is_tried_before_any_is_repeated(tmp_path: Path) -> None:
    many = replace(PLAIN, batch=2)
    records = Bench(tmp_path, make_plan(PLAIN, many, tasks=("chat",))).run()
    assert [(r.repeat, r.case.batch) for r in records] == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_what_was_loaded_is_kept_through_all_settings_and_repeats(tmp_path: Path) -> None:
    peer = Case("theirs", engine="vllm")
    cases = (PLAIN, peer, replace(PLAIN, batch=2), replace(peer, batch=2))
    bench = Bench(tmp_path, make_plan(*cases, tasks=("chat",), repeats=2))
    bench.run()
    assert [bench.events.count(f"start {name}") for name in ("none", "theirs")] == [2, 2]
    assert all(event.startswith("close") for event in bench.events[-4:])
    with open_log(tmp_path) as log:
        assert log.versions == {"vllm": "1.0", "torch (vllm)": "2"}


def test_no_more_processes_are_held_than_allowed_and_each_is_loaded_once(tmp_path: Path) -> None:
    peers = [Case(name, engine="vllm") for name in ("one", "two", "three")]
    plan = make_plan(PLAIN, *peers, tasks=("chat",), repeats=2)
    bench = Bench(tmp_path, replace(plan, most_processes=2))
    assert len(bench.run()) == 8
    held = most = 0
    for event in bench.events:
        held += (event.startswith("start") - event.startswith("close")) * ("none" not in event)
        most = max(most, held)
    assert (held, most) == (0, 2)
    assert [bench.events.count(f"start {peer.drafter}") for peer in peers] == [1, 1, 1]
    assert bench.events.index("start three") > bench.events.index("close two")


def test_a_case_whose_process_ended_is_started_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, make_plan(PLAIN, tasks=("chat",), repeats=2))
    runner = bench.build(PLAIN)
    bench.build = lambda case: runner  # type: ignore[method-assign]
    runner.ready = iter([False])
    assert len(bench.run()) == 2
    assert bench.events.count("start none") == 2


def test_progress_counts_turns_and_tells_the_time_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run()
    assert (bench.steps[0].text, bench.steps[0].total) == ("starting none", 12)
    assert bench.steps[0].seconds_left is None
    last = bench.steps[-1]
    assert (last.done, last.total, last.seconds_left) == (11, 12, 4.0)
    assert last.text == "ngram: b"
