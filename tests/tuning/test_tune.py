"""A tuning run on a tiny model: what it reports, and what it leaves behind."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider import Decoder, load
from outrider.engine.result import Result
from outrider.errors import OptionError, OutriderError, PromptError
from outrider.profile import Profile
from outrider.tuning.tally import DrafterResult, Run, Tally
from outrider.tuning.tune import PLAIN, TuneReport, best_drafter, tune
from outrider.workload.files import WorkloadPrompt
from support.files import word_tokenizer
from support.scripted import always
from support.tiny import shared_model

WORKLOAD = (
    WorkloadPrompt("a", "w1 w2 w3 w1 w2 w3 w1"),
    WorkloadPrompt("b", "w9 w8 w7"),
    WorkloadPrompt("c", "w5 w5 w5 w5"),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))


def loaded(drafter: Any = "suffix,ngram", **options: Any) -> Decoder:
    options = {"tokenizer": word_tokenizer(), "max_batch": 2, **options}
    return load(shared_model(), drafter=drafter, **options)


def quick(decoder: Decoder, **options: Any) -> TuneReport:
    """Tune with little to do, on a clock that ticks at every look: nothing depends on the time."""
    ticks = itertools.count()
    defaults: dict[str, Any] = {"max_new_tokens": 12, "seconds": 200.0}
    return tune(decoder, WORKLOAD, clock=lambda: float(next(ticks)), **(defaults | options))


def test_plain_each_drafter_and_all_together_are_tried_on_every_prompt() -> None:
    report = quick(loaded())
    assert [row.drafter for row in report.results] == ["none", "suffix", "ngram", "suffix,ngram"]
    assert [row.prompts for row in report.results] == [3] * 4
    assert [row.tokens for row in report.results] == [36] * 4
    assert report.is_identical
    plain = report.results[0]
    assert (plain.acceptance_length, plain.acceptance_rate, plain.speedup) == (1.0, None, 1.0)
    assert all(row.error is None for row in report.results)


def test_one_drafter_is_not_tried_twice_and_none_is_plain_alone() -> None:
    assert [row.drafter for row in quick(loaded("ngram")).results] == ["none", "ngram"]
    report = quick(loaded("none"))
    assert [row.drafter for row in report.results] == ["none"]
    assert report.recommended == "none"


def test_a_drafter_of_ones_own_is_tuned_under_its_name() -> None:
    report = quick(loaded([always(3)]))
    assert [row.drafter for row in report.results] == ["none", "scripted"]
    assert report.profile.drafters == {}


def test_the_turns_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is measured first changes from prompt to prompt."""
    order: list[tuple[str, int]] = []
    generate = Decoder.generate

    def noted(self: Decoder, prompt: Any, **options: Any) -> Result:
        names = ",".join(drafter.name for drafter in self.engine.drafters) or PLAIN
        order.append((names, options["seed"]))
        return generate(self, prompt, **options)

    monkeypatch.setattr(Decoder, "generate", noted)
    quick(loaded("ngram"))
    assert order[:2] == [("none", 0), ("ngram", 0)]  # the warm-up
    assert order[2:] == [
        ("none", 0),
        ("ngram", 0),
        ("ngram", 1),
        ("none", 1),
        ("none", 2),
        ("ngram", 2),
    ]


def test_what_was_measured_is_what_the_next_load_begins_with() -> None:
    report = quick(loaded())
    assert loaded(profile=None).profile is None
    path = report.profile.save()
    found = loaded()
    assert found.profile == report.profile == Profile.load(path)
    assert found.profile is not None
    assert set(report.profile.drafters) == {"suffix", "ngram"}
    assert found.engine.to_profile()["drafters"] == report.profile.drafters
    assert found.engine.to_profile()["pass"] == report.profile.passes
    assert loaded(profile=False).profile is None
    assert loaded(profile=path).profile == report.profile
    expected = loaded(profile=False).generate("w1 w2 w3 w1 w2", max_new_tokens=16)
    assert found.generate("w1 w2 w3 w1 w2", max_new_tokens=16).token_ids == expected.token_ids


def test_progress_tells_of_passes_and_of_prompts() -> None:
    told: list[str] = []
    quick(loaded("none"), progress=told.append)
    assert told[0].startswith("measuring passes")
    assert told[-1] == "prompt 3 of 3: c"


BAD_RUNS: dict[str, tuple[Any, Sequence[WorkloadPrompt], int, type[OutriderError], str]] = {
    "no prompts": ("none", (), 8, OptionError, "holds no prompts"),
    "prediction": ("suffix,prediction", WORKLOAD, 8, OptionError, "tune without it"),
    "grammar": ("suffix,grammar", WORKLOAD, 8, OptionError, "tune without it"),
    "length": ("none", WORKLOAD, 0, OptionError, "max_new_tokens is 0"),
    "too long": ("none", (WorkloadPrompt("x", "w1 " * 300),), 8, PromptError, "300 tokens"),
    "chat": (
        "none",
        (WorkloadPrompt("x", ({"role": "user", "content": "w1"},)),),
        8,
        PromptError,
        "no chat template",
    ),
}


@pytest.mark.parametrize("case", BAD_RUNS)
def test_a_wrong_request_is_one_error_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    drafter, workload, length, error, message = BAD_RUNS[case]
    decoder = loaded(drafter)
    monkeypatch.setattr(type(decoder.engine.target), "score", None)
    with pytest.raises(error, match=message):
        tune(decoder, workload, max_new_tokens=length)


def run(seconds: float, tokens: Sequence[int] = (1, 2, 3, 4), drafter: str = "none") -> Run:
    result = loaded(drafter).generate("w1 w2", max_new_tokens=4)
    kept = tuple(replace(result.tokens[0], id=token) for token in tokens)
    stats = result.stats
    stats.tokens = len(tokens)
    return Run(replace(result, tokens=kept, stats=stats), seconds)


def test_a_speedup_is_totals_over_totals() -> None:
    """SERVE-8: 100 in 10 s and 100 in 1 s against 100 in 5 s and 100 in 1 s is 11/6."""
    tally = Tally("suffix")
    tally.add("a", run(5.0), run(10.0))
    tally.add("b", run(1.0), run(1.0))
    row = tally.result()
    assert row.speedup == pytest.approx(11 / 6)
    assert row.tokens_per_second == pytest.approx(8 / 6)
    assert row.is_identical


@pytest.mark.parametrize("tokens", [(1, 2, 3), (1, 2, 3, 5), (1, 2, 3, 4, 5)])
def test_tokens_that_differ_or_are_missing_are_counted_and_named(tokens: Sequence[int]) -> None:
    """SERVE-7: equal so far is not equal."""
    tally = Tally("suffix")
    tally.add("a", run(1.0), run(2.0))
    tally.add("b", run(1.0, tokens), run(2.0))
    row = tally.result()
    assert not row.is_identical
    assert row.speedup == pytest.approx((4 + len(tokens)) / 2 / (8 / 4))
    (difference,) = row.differences
    assert difference.startswith("b: ")
    assert row.to_dict()["identical"] is False


def row(drafter: str, speedup: float, *differences: str) -> DrafterResult:
    return DrafterResult(drafter, 1, 8, 10.0 * speedup, 2.0, 0.5, None, speedup, differences)


def test_the_fastest_is_recommended_if_it_gains_and_changes_nothing() -> None:
    plain = row("none", 1.0)
    assert best_drafter([plain, row("suffix", 1.5), row("ngram", 1.4)]) == "suffix"
    assert best_drafter([plain, row("suffix", 1.5, "a: token 3"), row("ngram", 1.4)]) == "ngram"
    assert best_drafter([plain, row("suffix", 1.01), row("ngram", 0.7)]) == "none"
