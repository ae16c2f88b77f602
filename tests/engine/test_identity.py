"""Speculation never changes what the target says: the same ids, whoever drafts and however."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from outrider.drafters.base import Drafter
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.prediction import PredictionDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.engine.result import Result
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree, Rule
from support.heads import eagle_drafter, medusa_drafter
from support.laws import ALARM, NEAR_LOGITS, VOCABULARY, chi_square_excess
from support.runs import (
    assert_same,
    collect,
    decode,
    draft_model,
    make_request,
    shared_target,
)
from support.scripted import (
    SamplingDrafter,
    ScriptedDrafter,
    ScriptedTarget,
    always,
    oracle,
    random_tokens,
    random_trees,
    silent,
)
from support.tiny import ARCHITECTURES, VOCAB, greedy_ids, random_ids, shared_model, tiny_model

COUNT = 20
PROMPTS = (random_ids(5, 1), random_ids(12, 2) * 2, random_ids(9, 3))
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "seed": 11},
    "filtered": {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "seed": 4},
}


def requests(mode: str, architecture: str = "llama", hints: bool = False) -> list[Request]:
    """Return a request for each prompt; the hint is a third wrong, as a user's would be."""
    found = []
    for index, prompt in enumerate(PROMPTS):
        ids = plain(architecture, "greedy")[index].token_ids if hints else ()
        hint = [0 if i % 7 == 5 else token for i, token in enumerate(ids)]
        found.append(
            make_request(
                prompt, max_new_tokens=COUNT, prediction=hint or None, logprobs=2, **MODES[mode]
            )
        )
    return found


@functools.cache
def plain(architecture: str, mode: str) -> list[Result]:
    return collect(Engine(shared_target(architecture)), requests(mode, architecture))


def likely(architecture: str) -> Callable[[tuple[int, ...]], Sequence[float]]:
    """Return the target's own logits as a function of the context, for trees that know them."""
    model = shared_model(architecture)

    @functools.cache
    def logits(context: tuple[int, ...]) -> list[float]:
        with torch.inference_mode():
            found: Tensor = model(input_ids=torch.tensor([context]), use_cache=False).logits
        row: list[float] = found[0, -1].tolist()
        return row

    return logits


DRAFTERS: dict[str, Callable[[str], Drafter[Any]]] = {
    "ngram": lambda _: NgramDrafter(min_ngram=1),
    "suffix": lambda _: SuffixDrafter(max_shared_tokens=64),
    "prediction": lambda _: PredictionDrafter(),
    "unrelated": lambda _: draft_model("unrelated"),
    "noisy": lambda architecture: draft_model("noisy", architecture),
    "exact": lambda architecture: draft_model("exact", architecture),
    "eagle-1": lambda architecture: eagle_drafter(shared_model(architecture), 1),
    "eagle-3": lambda architecture: eagle_drafter(shared_model(architecture), 3),
    "medusa": lambda architecture: medusa_drafter(shared_model(architecture)),
    "trees": lambda architecture: random_trees(VOCAB, knows=likely(architecture)),
    "random": lambda _: random_tokens(VOCAB),
    "stubborn": lambda _: always(3),
    "silent": lambda _: silent(),
}
CHAINS = [name for name in DRAFTERS if not DRAFTERS[name]("llama").drafts_trees and name != "trees"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_plain_decoding_says_what_transformers_says(architecture: str) -> None:
    for prompt, result in zip(PROMPTS, plain(architecture, "greedy"), strict=True):
        assert list(result.token_ids) == greedy_ids(shared_model(architecture), prompt, COUNT)
        assert result.finish_reason == "length"


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
@pytest.mark.parametrize(
    "name", ["ngram", "noisy", "exact", "trees", "eagle-1", "eagle-3", "medusa"]
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_drafts_change_nothing_in_any_architecture(architecture: str, name: str, mode: str) -> None:
    """CACHE-4 and CACHE-8 among them: sliding windows, and trees."""
    engine = Engine(shared_target(architecture), DRAFTERS[name](architecture), max_draft=7)
    found = collect(engine, requests(mode, architecture))
    for result, expected in zip(found, plain(architecture, mode), strict=True):
        assert_same(result, expected)
    if name == "exact":
        assert all(result.stats.acceptance_rate == 1 for result in found)
    if name in ("noisy", "trees"):
        assert sum(result.stats.accepted for result in found) > 0


@pytest.mark.parametrize(("mode", "max_draft"), [("greedy", 7), ("sampled", 1), ("filtered", 2)])
@pytest.mark.parametrize("name", DRAFTERS)
def test_no_drafter_changes_anything_at_any_draft_length(
    name: str, mode: str, max_draft: int
) -> None:
    """DIST-14: sampled with the same seed as well as greedy."""
    engine = Engine(shared_target(), DRAFTERS[name]("llama"), max_draft=max_draft)
    wanted = requests(mode, hints=name == "prediction")
    for result, expected in zip(collect(engine, wanted), plain("llama", mode), strict=True):
        assert_same(result, expected)
        assert result.stats.drafter_error is None


@pytest.mark.parametrize("name", DRAFTERS)
def test_one_request_alone_with_drafts_beyond_its_end_is_no_different(name: str) -> None:
    drafter = DRAFTERS[name]("llama")
    request = requests("sampled", hints=name == "prediction")[1]
    found = decode(shared_target(), request, drafter, max_draft=2 * COUNT)
    assert_same(found, plain("llama", "sampled")[1])


@pytest.mark.parametrize(
    ("rule", "name"),
    [(rule, name) for rule in ("rejection", "traversal") for name in DRAFTERS]
    + [("block", name) for name in CHAINS],
)
def test_greedy_decoding_is_the_same_under_the_rules_that_reject(rule: Rule, name: str) -> None:
    engine = Engine(shared_target(), DRAFTERS[name]("llama"), rule=rule, max_draft=7)
    wanted = requests("greedy", hints=name == "prediction")
    for result, expected in zip(collect(engine, wanted), plain("llama", "greedy"), strict=True):
        assert_same(result, expected)


def test_without_q_block_and_rejection_are_one_rule() -> None:
    """SERVE-6: no rule is swapped for another in silence; for deterministic drafts they agree."""
    for request in requests("sampled"):
        found = [
            decode(shared_target(), request, NgramDrafter(min_ngram=1), rule=rule)
            for rule in ("block", "rejection")
        ]
        assert_same(found[0], found[1])
        assert found[0].stats.accepted == found[1].stats.accepted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_invariant_numerics_make_low_precision_identical_too(dtype: torch.dtype) -> None:
    target = TransformersTarget(tiny_model(dtype=dtype, scale=2.0), numerics="invariant")
    for mode in ("greedy", "sampled"):
        wanted = requests(mode)[:2]
        expected = [decode(target, request) for request in wanted]
        for name in ("random", "trees"):
            drafter = DRAFTERS[name]("llama")
            results = collect(Engine(target, drafter, max_draft=7), wanted)
            for found, one in zip(results, expected, strict=True):
                assert_same(found, one)
                assert found.logprobs == one.logprobs


@pytest.mark.parametrize("rule", get_args(Rule))
def test_a_request_runs_the_same_way_every_time(rule: Rule) -> None:
    engine = Engine(shared_target(), draft_model("noisy"), rule=rule, max_draft=5)
    first, second = (collect(engine, requests("sampled")) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert_same(one, other)
        assert one.stats.accepted == other.stats.accepted


# -- the law of sampled text under the rules that reject -------------------------------------------


def repeat_last(context: tuple[int, ...], budget: int) -> DraftTree:
    return DraftTree.chain([context[-1]] * budget)


def two_guesses(context: tuple[int, ...], budget: int) -> DraftTree:
    """Two deterministic branches that share nothing."""
    if budget < 2 or context[-1] == context[-2]:
        return repeat_last(context, budget)
    return DraftTree((context[-1], context[-2]), (-1, -1))


@pytest.mark.parametrize("rule", ["match", "rejection", "block", "traversal"])
def test_sampled_drafts_leave_the_law_of_sampled_text_alone(rule: Rule) -> None:
    assert abs(chi_square_excess(rule, SamplingDrafter(NEAR_LOGITS))) < ALARM


@pytest.mark.parametrize("rule", ["match", "rejection", "block", "traversal"])
def test_deterministic_drafts_leave_the_law_of_sampled_text_alone(rule: Rule) -> None:
    assert abs(chi_square_excess(rule, ScriptedDrafter(repeat_last))) < ALARM


@pytest.mark.parametrize("rule", ["match", "rejection"])
def test_branches_leave_the_law_of_sampled_text_alone(rule: Rule) -> None:
    assert abs(chi_square_excess(rule, ScriptedDrafter(two_guesses))) < ALARM


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
def test_the_law_check_notices_a_q_that_is_not_the_one_drawn_from(rule: Rule) -> None:
    flat = SamplingDrafter(NEAR_LOGITS, mislabel=lambda q: torch.full_like(q, 1 / VOCABULARY))
    assert chi_square_excess(rule, flat) > 5 * ALARM


def test_an_oracle_needs_one_pass_for_each_full_draft() -> None:
    text = random_ids(40, 5)
    target = ScriptedTarget.saying(text, VOCAB)
    result = decode(target, make_request((1,), max_new_tokens=40), oracle(text, 1), max_draft=7)
    assert result.token_ids == text
    assert (len(target.passes), result.stats.accepted) == (5, 35)
    assert result.stats.acceptance_length == 8
