"""What tuning found is told again, of the same model on the same machine only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider import load
from outrider.machine import Machine
from outrider.profile import Profile
from outrider.tuning.measured import measured_here
from outrider.tuning.tally import DrafterResult
from outrider.tuning.tune import tune
from outrider.workload.files import WorkloadPrompt
from support.files import word_tokenizer
from support.tiny import shared_model

NAME = "LlamaForCausalLM"  # a model without a name goes by its class


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    decoder = load(shared_model(), drafter="suffix,ngram", tokenizer=word_tokenizer(), max_batch=1)
    ticks = iter(range(10**9))
    prompts = [WorkloadPrompt("a", "w1 w2 w3 w1 w2 w3 w1")]
    found = tune(
        decoder, prompts, max_new_tokens=6, seconds=200.0, clock=lambda: float(next(ticks))
    ).profile
    assert found.subject.model == NAME
    return found


def with_speedups(profile: Profile, **speedups: float) -> Profile:
    """Return the profile with results of one's own, plain decoding's first."""
    rows = [
        DrafterResult(name, 1, 6, 9.0, 1.0, None, None, speedup).to_dict()
        for name, speedup in {"none": 1.0, **speedups}.items()
    ]
    return replace(profile, results=tuple(rows))


def test_drafters_come_with_their_speedups_and_the_best_is_named(profile: Profile) -> None:
    with_speedups(profile, ngram=1.25, suffix=1.5).save()
    (found,) = measured_here(NAME)
    assert found.speedups == (("suffix", 1.5), ("ngram", 1.25))
    assert found.best == "suffix"
    assert str(found).startswith("best drafter suffix (suffix 1.50x, ngram 1.25x); rows cost ")
    assert found.setting == f"float64, eager, fast numerics, {profile.measured[:10]}"
    assert [rows for rows, _ in found.row_costs] == [4, 8, 16]
    assert json.loads(json.dumps(found.to_dict()))["speedups"] == {"suffix": 1.5, "ngram": 1.25}


def test_where_none_gained_plain_decoding_is_the_best(profile: Profile) -> None:
    with_speedups(profile, suffix=0.97).save()
    (found,) = measured_here(NAME)
    assert found.best == "none"
    assert "best drafter none, as plain decoding was as fast (suffix 0.97x)" in str(found)


def test_a_run_as_it_is_stored_is_told(profile: Profile) -> None:
    profile.save()
    (found,) = measured_here(NAME)
    assert {drafter for drafter, _ in found.speedups} == {"suffix", "ngram", "suffix,ngram"}


@pytest.mark.parametrize("changed", ["model", "machine", "damaged"])
def test_of_others_nothing_is_told(profile: Profile, changed: str) -> None:
    if changed == "model":
        profile = replace(profile, subject=replace(profile.subject, model="other"))
    elif changed == "machine":
        other: Machine = replace(profile.machine, cores=10_000)
        profile = replace(profile, machine=other)
    path = profile.save()
    if changed == "damaged":
        path.write_text(path.read_text()[:-40])
    assert list(measured_here(NAME)) == []


def test_the_latest_comes_first(profile: Profile) -> None:
    ways: list[dict[str, Any]] = [{"is_compiled": True}, {"numerics": "invariant"}, {}]
    for day, way in zip((2, 3, 1), ways, strict=True):
        subject = replace(profile.subject, **way)
        replace(profile, subject=subject, measured=f"2030-01-0{day}T00:00:00+00:00").save()
    assert [one.date for one in measured_here(NAME)] == ["2030-01-03", "2030-01-02", "2030-01-01"]
