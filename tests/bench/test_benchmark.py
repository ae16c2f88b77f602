"""A whole benchmark on a tiny model."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_fakes import FakeRunner

from outrider import load
from outrider.bench.base import ALL, Case, Record, Runner
from outrider.bench.benchmark import Benchmark
from outrider.bench.contestants import Contestants
from outrider.bench.drafter_sets import parse_drafter_sets
from outrider.bench.log import Log
from outrider.bench.options import BenchOptions
from outrider.bench.outcome import read_outcome
from outrider.bench.own import OwnTarget
from outrider.bench.pace import Step
from outrider.errors import LoadError, OptionError, PromptError
from outrider.workload.files import WorkloadPrompt
from support.files import word_tokenizer
from support.tiny import shared_model

WORKLOAD = (
    WorkloadPrompt("a", "w1 w2 w3 w1 w2 w3 w1", "edit"),
    WorkloadPrompt("b", "w9 w8 w7", "chat"),
    WorkloadPrompt("c", "w5 w5 w5 w5", "edit"),
)


def make_benchmark(drafters: str = "suffix", **options: Any) -> Benchmark:
    """Return a benchmark with little to do, on a clock that ticks at every look."""
    ticks = itertools.count()
    fields = Benchmark.__dataclass_fields__
    given = {name: options.pop(name) for name in list(options) if name in fields}
    chosen = BenchOptions(
        parse_drafter_sets(drafters), **{"max_new_tokens": 8, "repeats": 1} | options
    )
    most = max(chosen.batches)
    decoder = load(shared_model(), tokenizer=word_tokenizer(), profile=False, max_batch=most)

    def clock() -> float:
        return float(next(ticks))

    defaults: dict[str, Any] = {
        "target": "tiny",
        "own": [OwnTarget(decoder, "float64", clock=clock)],
        "options": chosen,
        "workload": WORKLOAD,
        "workload_name": "some.jsonl",
        "measure_s": 100.0,
        "clock": clock,
    }
    return Benchmark(**defaults | given)


def records_of(folder: Path, benchmark: Benchmark) -> list[Record]:
    made_with = benchmark._made_with(benchmark.plan())
    with Log.open(folder, made_with, benchmark._setup(benchmark.plan()), now="") as log:
        return log.records


def test_a_report_has_a_row_for_each_case_and_task(tmp_path: Path) -> None:
    report = make_benchmark("ngram,suffix", temperatures=(0.0, 1.0), batches=(1, 2)).run(tmp_path)
    assert report.tasks == ("edit", "chat")
    settings = [(t, b) for t in (0.0, 1.0) for b in (1, 2)]
    for temperature, batch in settings:
        rows = [
            row
            for row in report.rows
            if (row.case.temperature, row.case.batch) == (temperature, batch)
        ]
        assert [(row.case.drafter, row.task) for row in rows] == [
            (drafter, task)
            for drafter in ("none", "ngram", "suffix")
            for task in (ALL, "edit", "chat")
        ]
        drafted = [row for row in rows if row.case.drafter != "none"]
        assert all(row.identical == row.compared == row.prompts for row in drafted)
        assert all(row.why and row.predicted is not None for row in drafted)
    assert report.failures == ()
    assert {point.weights for point in report.costs} == {"float64"}
    assert (report.workload, report.prompts, report.repeats) == ("some.jsonl", 3, 1)
    assert report.notes[0] == "outrider with float64 weights: passes eager, on cpu, fast numerics."
    assert report.notes[1].startswith("Batch 2: some prompts stand in a batch twice")


def test_a_stopped_benchmark_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    """What it answers in the end is what one run would have answered."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    make_benchmark(repeats=2).run(whole)
    stopped: list[Step] = []

    def stop(step: Step) -> None:
        stopped.append(step)
        if step.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_benchmark(repeats=2, progress=stop).run(parts)
    report = make_benchmark(repeats=2).run(parts)
    one, other = (records_of(folder, make_benchmark(repeats=2)) for folder in (whole, parts))
    assert [(r.case, r.repeat, r.prompts, r.decoded.answers) for r in one] == [
        (r.case, r.repeat, r.prompts, r.decoded.answers) for r in other
    ]
    assert [r.run for r in other] == [0] * 5 + [1] * 7
    assert len(report.rows) == 6
    costs = {id(points): points for points in (report.costs,)}
    assert len(costs) == 1


def test_a_report_is_written_anew_from_what_was_measured(tmp_path: Path) -> None:
    peers = fake_peers(LoadError("no vllm here"))
    report = make_benchmark(peers=peers, batches=(1, 2), command="outrider bench x").run(tmp_path)
    assert read_outcome(tmp_path) == report
    assert report.failures


def test_a_stopped_benchmark_has_a_report_of_what_it_measured(tmp_path: Path) -> None:
    def stop(step: Step) -> None:
        if step.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_benchmark(repeats=2, progress=stop).run(tmp_path)
    report = read_outcome(tmp_path)
    assert {row.case.drafter for row in report.rows} == {"none", "suffix"}
    assert any("stopped, with 5 of 12 turns taken" in note for note in report.notes)


def test_passes_are_measured_once_for_a_folder(tmp_path: Path) -> None:
    first = make_benchmark().run(tmp_path)
    steps: list[Step] = []
    again = make_benchmark(progress=steps.append).run(tmp_path)
    assert again.costs == first.costs
    assert again.rows == first.rows
    assert steps == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 2}, "made with repeats 1, not 2"),
        ({"drafters": "ngram"}, "made with drafters"),
        ({"batches": (2,)}, "made with batch '1', not '2'"),
        ({"max_new_tokens": 9}, "made with max_new_tokens 8, not 9"),
        ({"workload": WORKLOAD[:2]}, "made with prompt_ids"),
        ({"target": "other"}, "made with target 'tiny', not 'other'"),
    ],
)
def test_another_command_in_the_same_folder_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    make_benchmark().run(tmp_path)
    with pytest.raises(OptionError, match=message):
        make_benchmark(**options).run(tmp_path)


def test_time_that_runs_out_is_said_and_the_rest_can_follow(tmp_path: Path) -> None:
    report = make_benchmark(max_minutes=1e-9).run(tmp_path)
    note = next(note for note in report.notes if note.startswith("Time ran out"))
    assert "with 2 of 6 turns taken. The same command again goes on." in note
    whole = make_benchmark().run(tmp_path)
    assert len(whole.rows) == 6
    assert not any(note.startswith("Time ran out") for note in whole.notes)


def fake_peers(fault: Exception | None = None) -> Contestants:
    """Return two cases of a peer, of which one may fail."""
    cases = (Case("none", "vllm"), Case("ngram", "vllm"))

    def build(case: Case, longest: int) -> Runner:
        assert longest == 7 + 8
        if fault is not None and case.drafter == "ngram":
            raise fault
        return FakeRunner(case)

    return Contestants(cases, build, ("vllm cannot sing",), {"peers": ["vllm"]})


def test_peers_decode_beside_ours(tmp_path: Path) -> None:
    report = make_benchmark(peers=fake_peers()).run(tmp_path)
    rows = {row.case.label: row for row in report.rows if row.task == ALL}
    assert list(rows) == ["none float64", "suffix float64", "vllm none", "vllm ngram"]
    assert rows["vllm ngram"].own_speedup == 1.0
    assert report.versions == {"vllm": "1.0", "torch (vllm)": "2"}
    assert report.notes[-1] == "vllm cannot sing"
    with pytest.raises(OptionError, match="made with peers"):
        make_benchmark().run(tmp_path)


def test_a_peer_that_fails_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    report = make_benchmark(peers=fake_peers(LoadError("no vllm here"))).run(tmp_path)
    (failure,) = report.failures
    assert (failure.case, failure.error) == (Case("ngram", "vllm"), "no vllm here")
    assert len({row.case for row in report.rows}) == 3


def test_the_same_failure_in_many_settings_is_told_once(tmp_path: Path) -> None:
    peers = fake_peers(LoadError("no vllm here"))
    cases = tuple(replace(case, batch=batch) for batch in (1, 2) for case in peers.cases)
    report = make_benchmark(peers=replace(peers, cases=cases), batches=(1, 2)).run(tmp_path)
    assert [failure.error for failure in report.failures] == ["no vllm here"]


def test_a_peer_installed_later_is_measured_later_and_that_is_said(tmp_path: Path) -> None:
    make_benchmark(peers=fake_peers(LoadError("no vllm here"))).run(tmp_path)
    report = make_benchmark(peers=fake_peers()).run(tmp_path)
    assert len({row.case for row in report.rows}) == 4
    expected = "vllm ngram was measured in another run than plain decoding, not beside it."
    assert expected in report.notes


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"workload": ()}, OptionError, "holds no prompts"),
        ({"max_new_tokens": 0}, OptionError, "max_new_tokens is 0"),
        ({"workload": (WorkloadPrompt("x", "w1 " * 300),)}, PromptError, "300 tokens"),
    ],
)
def test_a_wrong_request_leaves_no_trace(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_benchmark(**options).run(tmp_path / "new")
    assert not (tmp_path / "new").exists()
