"""Caches of finished requests, and what of them serves the next."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scheduling import Telltale, run_all, telling_target, told

from outrider.drafters.ngram import NgramDrafter
from outrider.engine.engine import Engine
from outrider.engine.prefixes import PrefixCache
from outrider.engine.rereading import may_reuse_decoded
from outrider.engine.session import Session
from outrider.targets.base import Rows
from outrider.targets.transformers import TransformersTarget
from support.runs import assert_same, decode, draft_model, make_request, shared_target
from support.tiny import random_ids, tiny_model


def test_a_prompt_that_goes_on_from_an_answer_reads_only_what_is_new() -> None:
    target = telling_target()
    scheduler = Engine(target).scheduler(max_prefixes=2)
    prompt = random_ids(20)
    (first,) = run_all(scheduler, [make_request(prompt, max_new_tokens=6)])
    longer = (*prompt, *first.token_ids, 5, 6)
    target.passes.clear()
    (second,) = run_all(scheduler, [make_request(longer, max_new_tokens=6)])
    # Of the answer the last token had never been read.
    assert (second.stats.reused_tokens, len(target.passes[0][0].pending)) == (25, 3)
    assert second.token_ids == told(longer, 6)
    assert scheduler.snapshot().reused_tokens == 25
    assert scheduler.snapshot().prompt_tokens == 20 + 28


@pytest.mark.parametrize("name", ["none", "ngram", "noisy"])
def test_reuse_never_changes_what_is_said(name: str) -> None:
    drafters: dict[str, Any] = {"none": None, "ngram": NgramDrafter(min_ngram=1)}
    drafter = draft_model("noisy") if name == "noisy" else drafters[name]
    engine = Engine(shared_target(), drafter, max_draft=4, max_batch=2)
    scheduler = engine.scheduler(max_prefixes=3)
    stem = random_ids(40, 3)
    for turn in range(3):
        wanted = [
            make_request((*stem[: 40 - 9 * who], *random_ids(5 + turn, who)), max_new_tokens=7)
            for who in range(4)
        ]
        for request, result in zip(wanted, run_all(scheduler, wanted), strict=True):
            assert_same(result, decode(shared_target(), request))
    assert scheduler.snapshot().reused_tokens > 100
    scheduler.close()


def test_the_longest_part_in_common_is_taken_and_a_short_one_is_left() -> None:
    target = telling_target()
    scheduler = Engine(target, max_batch=1).scheduler(max_prefixes=4)
    prompts = [random_ids(30, seed) for seed in (1, 2)]
    prompts.append((*prompts[0][:20], *random_ids(10, 3)))
    run_all(scheduler, [make_request(prompt, max_new_tokens=2) for prompt in prompts[:2]])
    (found,) = run_all(scheduler, [make_request(prompts[2], max_new_tokens=2)])
    assert found.stats.reused_tokens == 20
    # Seven tokens in common are not worth a cache.
    (found,) = run_all(scheduler, [make_request((*prompts[1][:7], 9, 9), max_new_tokens=2)])
    assert found.stats.reused_tokens == 0
    # And of a long text whose beginning alone is shared, more is lost than gained.
    (found,) = run_all(scheduler, [make_request((*prompts[1][:9], 8, 8), max_new_tokens=2)])
    assert found.stats.reused_tokens == 0
    assert scheduler.snapshot().idle_caches == 4


def test_what_was_used_longest_ago_is_dropped_first_and_the_number_is_bounded() -> None:
    target = telling_target()
    cache = PrefixCache(target, 2)
    kept = []
    for seed in range(3):
        prefix = cache.open(50)
        tokens = random_ids(20, seed)
        target.score([Rows(prefix.sequence, tokens)])
        target.commit(prefix.sequence, ())
        prefix.take_back(tokens, 19)
        cache.put(prefix)
        kept.append(prefix)
    assert list(cache) == kept[1:]
    assert cache.take(random_ids(20)) is None
    taken = cache.take(random_ids(20, 1))
    assert taken is kept[1]
    cache.put(taken)
    assert list(cache) == [kept[2], kept[1]]
    cache.clear()
    assert not target.held


def test_without_places_for_them_no_cache_stays() -> None:
    target = telling_target()
    scheduler = Engine(target).scheduler()
    run_all(scheduler, [make_request(random_ids(20), max_new_tokens=4)] * 2)
    assert not target.held


def test_a_cache_serves_one_request_at_a_time() -> None:
    target = telling_target()
    scheduler = Engine(target).scheduler(max_prefixes=3)
    request = make_request(random_ids(20), max_new_tokens=4)
    run_all(scheduler, [request])
    found = run_all(scheduler, [request] * 3)
    assert sorted(result.stats.reused_tokens for result in found) == [0, 0, 19]
    assert {result.token_ids for result in found} == {told(random_ids(20), 4)}


# -- bits ------------------------------------------------------------------------------------------


def test_whether_decoded_rows_are_as_good_as_read_ones_is_tried() -> None:
    target = Telltale()
    assert not may_reuse_decoded(target)
    target.tells = False
    assert may_reuse_decoded(target)
    assert may_reuse_decoded(telling_target())
    assert not target.held


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_trial_of_a_real_target_leaves_nothing_behind(dtype: torch.dtype) -> None:
    target = TransformersTarget(tiny_model(dtype=dtype), numerics="invariant")
    assert isinstance(may_reuse_decoded(target), bool)
    assert not target._sequences


def test_where_bits_differ_only_what_was_read_is_used_again() -> None:
    target = Telltale()
    prompt = random_ids(20)
    scheduler = Engine(target).scheduler(max_prefixes=2)
    (first,) = run_all(scheduler, [make_request(prompt, max_new_tokens=6, logprobs=0)])
    longer = make_request((*prompt, *first.token_ids, 5, 6), max_new_tokens=6, logprobs=0)
    (second,) = run_all(scheduler, [longer])
    # The last token of a prompt is decoded from.
    assert second.stats.reused_tokens == 19
    assert second.logprobs == decode(target, longer).logprobs


def test_a_conversation_keeps_the_bits_too() -> None:
    target = Telltale()
    with Session(target) as session:
        prompt = random_ids(20)
        options: dict[str, Any] = {"max_new_tokens": 6, "logprobs": 0, "session": session}
        first = decode(target, make_request(prompt, **options))
        longer = (*prompt, *first.token_ids, 5)
        second = decode(target, make_request(longer, **options))
        cold = decode(target, make_request(longer, **(options | {"session": None})))
        assert second.stats.reused_tokens == 19
        assert second.logprobs == cold.logprobs
