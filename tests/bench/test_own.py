"""outrider's own cases, on a tiny model."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
from bench_fakes import PLAIN, SUFFIX

from outrider import load
from outrider.bench.base import Case, CostPoint
from outrider.bench.drafter_sets import DrafterSet, parse_drafter_sets
from outrider.bench.own import OwnRunner, OwnTarget, pass_costs
from outrider.engine.measure import measure_passes
from outrider.errors import OptionError, OutriderError
from outrider.targets.transformers import TransformersTarget
from support.files import word_tokenizer
from support.tiny import greedy_ids, random_ids, shared_model

PROMPTS = (random_ids(9), random_ids(7, 1) * 2, random_ids(5, 2))


def own_target() -> OwnTarget:
    """Return the tiny model as a target, on a clock that ticks at every look."""
    ticks = itertools.count()
    decoder = load(shared_model(), tokenizer=word_tokenizer(), profile=False, max_batch=4)
    return OwnTarget(decoder, "float64", clock=lambda: float(next(ticks)))


def started(text: str, target: OwnTarget | None = None, **case: Any) -> OwnRunner:
    drafters = parse_drafter_sets(text)[-1]
    runner = OwnRunner(Case(drafters.text, **case), target or own_target(), drafters)
    runner.start()
    return runner


def test_answers_are_those_of_the_model() -> None:
    for text in ("none", "suffix", "suffix+ngram"):
        found = started(text, batch=3).decode(PROMPTS, max_new_tokens=12, seed=0)
        expected = tuple(tuple(greedy_ids(shared_model(), ids, 12)) for ids in PROMPTS)
        assert found.answers == expected


def test_sampled_answers_depend_on_the_seed_and_not_on_the_drafter() -> None:
    def decode(text: str, seed: int) -> Any:
        runner = started(text, temperature=1.0, batch=2)
        return runner.decode(PROMPTS[:2], max_new_tokens=10, seed=seed).answers

    assert decode("none", 3) == decode("suffix", 3)
    assert decode("none", 3) != decode("none", 4)
    runner = started("none", temperature=1.0)
    alone = runner.decode([PROMPTS[1]], max_new_tokens=10, seed=4).answers
    assert alone == decode("none", 3)[1:]  # each prompt of a batch has a seed of its own


def test_counters_add_up() -> None:
    found = started("suffix", batch=3).decode(PROMPTS, max_new_tokens=12, seed=0)
    counters = found.counters
    assert counters is not None
    tokens = sum(len(ids) for ids in found.answers)
    assert counters.rounds <= tokens <= counters.rounds + counters.accepted
    assert counters.proposed == sum(counters.proposed_at)
    assert counters.accepted == sum(counters.accepted_at)
    assert counters.drafts <= counters.levels <= counters.proposed or not counters.drafts
    parts = counters.prefill_s + counters.draft_s + counters.score_s + counters.host_s
    assert parts == pytest.approx(found.seconds)
    assert counters.passes


def test_the_seconds_are_those_of_the_clock() -> None:
    found = started("none").decode(PROMPTS[:1], max_new_tokens=4, seed=0)
    assert found.seconds == 1.0  # looked at before and after


def test_a_case_begins_with_the_measured_costs() -> None:
    target = own_target()
    points = measure_passes(TransformersTarget(shared_model()), max_batch=2, seconds=0.0)
    target.points = tuple(
        CostPoint("float64", p.batch, p.context, p.rows, p.seconds, p.computed) for p in points
    )
    runner = started("suffix", target)
    assert runner._decoder is not None
    engine = runner._decoder.engine
    assert engine.costs.to_dict() == pass_costs(target.points).to_dict()
    assert engine.costs.is_measured


def test_what_is_learnt_is_kept_from_prompt_to_prompt() -> None:
    runner = started("suffix")
    assert runner._decoder is not None
    learnt = []
    for _ in range(2):
        learnt.append(runner._decoder.engine.to_profile())
        runner.decode([PROMPTS[1] * 3], max_new_tokens=20, seed=0)
    assert learnt[0]["drafters"] != learnt[1]["drafters"]


def test_cases_share_a_drafter_and_its_weights() -> None:
    target = own_target()
    one, other = started("early-exit:1", target), started("early-exit:1+suffix", target)
    assert one._decoder is not None and other._decoder is not None
    assert one._decoder.engine.drafters[0] is other._decoder.engine.drafters[0]


def test_memory_is_known_once_something_was_decoded() -> None:
    runner = started("none")
    assert runner.peak_memory() is None
    runner.decode(PROMPTS[:1], max_new_tokens=2, seed=0)
    peak = runner.peak_memory()
    assert peak is not None and peak > 1 << 20


def test_a_drafter_that_is_dropped_fails_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures would be those of plain decoding."""
    runner = started("suffix")
    assert runner._decoder is not None

    def fail(*_: object) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr(type(runner._decoder.engine.drafters[0]), "propose", fail)
    message = "was dropped: RuntimeError: lost"
    with warnings.catch_warnings(), pytest.raises(OutriderError, match=message):
        warnings.simplefilter("ignore")
        runner.decode([PROMPTS[1]], max_new_tokens=12, seed=0)


def test_a_drafter_that_cannot_be_had_is_an_error_at_the_start() -> None:
    runner = OwnRunner(Case("early-exit:9"), own_target(), parse_drafter_sets("early-exit:9")[1])
    with pytest.raises(OptionError, match="2 layers"):
        runner.start()


def test_a_closed_runner_may_be_closed_again() -> None:
    runner = OwnRunner(PLAIN, own_target(), DrafterSet(()))
    runner.close()
    runner.start()
    runner.close()
    runner.close()
    assert SUFFIX.label == "suffix"
