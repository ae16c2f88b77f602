"""What is lost by cases that change the answer, from a benchmark of a tiny model."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outrider import load
from outrider.bench.alternatives import cut
from outrider.bench.base import ALL, Case, Report, Row
from outrider.bench.benchmark import Benchmark
from outrider.bench.drafter_sets import parse_drafter_sets
from outrider.bench.losses import original_of
from outrider.bench.options import BenchOptions, parse_lossy_rules
from outrider.bench.outcome import read_outcome
from outrider.bench.own import OwnTarget
from outrider.bench.pace import Step
from outrider.difference import count_others
from outrider.errors import OptionError
from outrider.workload.files import WorkloadPrompt
from support.files import word_tokenizer
from support.tiny import shared_model, tiny_model

WORKLOAD = (
    WorkloadPrompt("a", "w1 w2 w3 w1 w2 w3 w1", "edit"),
    WorkloadPrompt("b", "w9 w8 w7", "chat"),
    WorkloadPrompt("c", "w5 w5 w5 w5", "edit"),
)
LOOSE = "typical:0.001,0.001"


def targets(*models: str) -> list[OwnTarget]:
    """Return the tiny model, and others that stand in its place."""
    ticks = itertools.count()
    found = []
    for name in ("", *models):
        model = tiny_model() if name else shared_model()
        if name == "cut:1":
            cut(model, 1, name)
        decoder = load(model, tokenizer=word_tokenizer(), profile=False, max_batch=2)
        found.append(OwnTarget(decoder, "float64", model=name, clock=lambda: float(next(ticks))))
    return found


def benchmark(*models: str, lossy: str | None = None, **options: Any) -> Benchmark:
    """Return a benchmark with little to do, on a clock that ticks at every look."""
    ticks = itertools.count()
    rules = () if lossy is None else parse_lossy_rules(lossy)
    progress = options.pop("progress", lambda _: None)
    chosen = BenchOptions(
        parse_drafter_sets("suffix"),
        lossy=rules,
        **{"max_new_tokens": 24, "repeats": 1} | options,
    )
    return Benchmark(
        target="tiny",
        own=targets(*models),
        options=chosen,
        workload=WORKLOAD,
        workload_name="some.jsonl",
        measure_s=100.0,
        clock=lambda: float(next(ticks)),
        progress=progress,
    )


def rows_of(report: Report, task: str = ALL) -> dict[str, Row]:
    assert report.failures == ()
    return {row.case.label: row for row in report.rows if row.task == task}


def test_a_lossy_rule_is_held_against_the_targets_own_text(tmp_path: Path) -> None:
    report = benchmark(lossy=LOOSE, batches=(2,)).run(tmp_path)
    rows = rows_of(report)
    plain, match = rows["none float64"], rows["suffix float64"]
    lossy = rows[f"suffix (lossy {LOOSE}) float64"]
    assert lossy.case.changes_answer
    assert lossy.differing is not None and 0 < lossy.differing <= 1
    assert (lossy.compared, lossy.identical, lossy.differences) == (0, 0, ())
    assert lossy.log_likelihood is not None and plain.log_likelihood is not None
    assert lossy.plain_log_likelihood == pytest.approx(plain.log_likelihood)
    assert lossy.log_likelihood < plain.log_likelihood  # it says what the target finds unlikely
    assert lossy.over_original is not None
    assert (match.log_likelihood, match.differing) == (None, None)
    assert match.identical == match.compared == 3
    assert plain.differing is None


def test_a_lossy_rule_takes_fewer_rounds_than_match_on_the_same_prompts(tmp_path: Path) -> None:
    rows = rows_of(benchmark(lossy=LOOSE).run(tmp_path))
    match, lossy = rows["suffix float64"], rows[f"suffix (lossy {LOOSE}) float64"]
    assert match.acceptance_length is not None and lossy.acceptance_length is not None
    assert lossy.tokens == match.tokens
    assert lossy.acceptance_length > match.acceptance_length


def test_at_its_limit_a_lossy_rule_loses_nothing_and_still_claims_nothing(tmp_path: Path) -> None:
    rows = rows_of(benchmark(lossy="fly:1,1").run(tmp_path))
    lossy = rows["suffix (lossy fly:1,1) float64"]
    assert lossy.differing == 0
    assert lossy.log_likelihood == lossy.plain_log_likelihood
    assert lossy.compared == 0


def test_a_model_in_the_targets_place_is_held_against_the_target(tmp_path: Path) -> None:
    """A copy loses nothing; half of the model loses much; speculation on either nothing more."""
    report = benchmark("copy", "cut:1").run(tmp_path)
    rows = rows_of(report)
    copy, half = rows["copy: none float64"], rows["cut:1: none float64"]
    assert (copy.differing, copy.divergence, copy.same_choice) == (0, 0, 1)
    assert copy.log_likelihood == copy.plain_log_likelihood
    assert half.divergence is not None and half.divergence > 0.01
    assert half.same_choice is not None and half.same_choice < 0.9
    assert half.differing is not None and half.differing > 0.5
    assert half.log_likelihood is not None and half.plain_log_likelihood is not None
    assert half.log_likelihood < half.plain_log_likelihood
    for name in ("copy", "cut:1"):
        above = rows[f"{name}: suffix float64"]
        plain = rows[f"{name}: none float64"]
        assert above.identical == above.compared == 3
        assert (above.divergence, above.same_choice) == (plain.divergence, plain.same_choice)
        assert above.differing == plain.differing
    whole, sizes = rows["none float64"].weight_bytes, (copy.weight_bytes, half.weight_bytes)
    assert whole is not None and sizes[0] == whole and sizes[1] is not None and sizes[1] < whole
    assert {point.held for point in report.costs} == {"float64", "copy float64", "cut:1 float64"}


def test_tasks_have_figures_of_their_own_prompts(tmp_path: Path) -> None:
    report = benchmark("cut:1", lossy=LOOSE).run(tmp_path)
    whole, edit, chat = (rows_of(report, task) for task in (ALL, "edit", "chat"))
    for label in ("cut:1: none float64", f"suffix (lossy {LOOSE}) float64"):
        assert edit[label].log_likelihood != chat[label].log_likelihood
    name = "cut:1: none float64"
    parts = [(edit[name], 48), (chat[name], 24)]  # tokens of each
    mean = sum((row.divergence or 0) * tokens for row, tokens in parts) / 72
    assert whole[name].divergence == pytest.approx(mean)


def test_sampled_texts_are_compared_where_equal_seeds_give_equal_tokens(tmp_path: Path) -> None:
    rules = f"{LOOSE},lenience:0.5"
    rows = rows_of(benchmark(lossy=rules, temperatures=(1.0,)).run(tmp_path))
    assert rows[f"suffix (lossy {LOOSE}) float64"].differing is not None
    lenient = rows["suffix (lossy lenience:0.5) float64"]
    assert lenient.differing is None  # it is drawn otherwise than plain decoding is
    assert lenient.log_likelihood is not None


def test_what_was_judged_is_kept_and_the_rest_follows(tmp_path: Path) -> None:
    make = partial(benchmark, "cut:1", lossy=LOOSE)
    stopped: list[str] = []

    def stop(step: Step) -> None:
        if step.text.startswith(("judging", "comparing")):
            stopped.append(step.text)
            if len(stopped) == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(progress=stop).run(tmp_path)
    again: list[Step] = []
    report = make(progress=again.append).run(tmp_path)
    assert not {one.text for one in again} & set(stopped[:4])
    assert stopped[4] in {one.text for one in again}
    assert all(row.log_likelihood is not None for row in report.rows if row.case.changes_answer)
    assert read_outcome(tmp_path) == report
    last: list[Step] = []
    assert make(progress=last.append).run(tmp_path).rows == report.rows
    assert last == []


def test_another_lossy_rule_or_model_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    benchmark(lossy=LOOSE).run(tmp_path)
    with pytest.raises(OptionError, match="made with lossy"):
        benchmark(lossy="fly:1,0.3").run(tmp_path)
    with pytest.raises(OptionError, match="made with passes"):
        benchmark("copy", lossy=LOOSE).run(tmp_path)


def test_without_the_word_no_case_is_lossy() -> None:
    options = BenchOptions(parse_drafter_sets("suffix"), rules=("match", "rejection", "block"))
    assert not any(case.changes_answer for case in options.own_cases("float32"))
    lossy = replace(options, lossy=parse_lossy_rules(f"{LOOSE},fly:2,0.3"))
    assert [case.label for case in lossy.own_cases("float32") if case.lossy] == [
        f"suffix (lossy {LOOSE})",
        "suffix (lossy fly:2,0.3)",
    ]
    assert not any(case.lossy for case in lossy.own_cases("float32", "int8"))


@pytest.mark.parametrize("text", ["", "match", "typical", "typical:0.1", "fly:2,0.3,", "fly:2,x"])
def test_what_is_no_list_of_lossy_rules_is_one_error(text: str) -> None:
    with pytest.raises(OptionError, match="lossy is"):
        parse_lossy_rules(text)


def test_places_that_differ_are_counted_with_those_that_are_missing() -> None:
    assert count_others((1, 2, 3), (1, 5, 3)) == 1
    assert count_others((1, 2, 3), (1, 2)) == count_others((1, 2), (1, 2, 3)) == 1
    assert count_others((), ()) == 0


def test_another_model_stands_beside_the_targets_first_weights() -> None:
    case = Case("suffix", weights="int8", temperature=1.0, batch=2, model="int8")
    assert original_of(case, "bfloat16") == Case(
        "none", weights="bfloat16", temperature=1.0, batch=2
    )
    lossy = Case("suffix", weights="int8", lossy=LOOSE)
    assert original_of(lossy, "bfloat16") == Case("none", weights="int8")
