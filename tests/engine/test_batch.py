"""What a request says does not depend on who runs beside it, or on how many may."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from fake_tokenizers import word_tokenizer

from outrider.drafters.base import Drafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.engine.result import Result
from outrider.types import NO_DRAFT, DraftTree, Rule
from support.runs import assert_same, collect, decode, draft_model, make_request, shared_target
from support.scripted import ScriptedDrafter, ScriptedTarget, oracle, random_trees
from support.tiny import VOCAB, random_ids

DRAFTERS: dict[str, Callable[[], Drafter[Any] | None]] = {
    "none": lambda: None,
    "ngram": lambda: NgramDrafter(min_ngram=1),
    "noisy": lambda: draft_model("noisy"),
    "exact": lambda: draft_model("exact"),
}


def mixed() -> list[Request]:
    """Return requests that differ in length, options, seeds and the way they end."""
    stop = decode(shared_target(), make_request(random_ids(7, 2), max_new_tokens=9)).token_ids[5]
    return [
        make_request(random_ids(5, 1), max_new_tokens=25),
        make_request(random_ids(7, 2), max_new_tokens=25, eos=[stop], logprobs=2),
        make_request(random_ids(40, 3), max_new_tokens=3, temperature=1.0, seed=3),
        make_request(random_ids(1, 4), max_new_tokens=30, temperature=0.8, seed=4, top_p=0.9),
        make_request(
            random_ids(9, 5), max_new_tokens=25, tokenizer=word_tokenizer(VOCAB + 1), stop="w3"
        ),
        make_request(random_ids(18, 6) * 2, max_new_tokens=1, repetition_penalty=1.3),
        make_request(random_ids(3, 7), max_new_tokens=12, temperature=1.0, seed=3, min_p=0.05),
    ]


@functools.cache
def alone() -> list[Result]:
    return [decode(shared_target(), request) for request in mixed()]


@pytest.mark.parametrize("max_batch", [1, 2, 3, 8])
@pytest.mark.parametrize("name", DRAFTERS)
def test_a_batch_of_different_requests_equals_their_single_runs(name: str, max_batch: int) -> None:
    """BATCH-1, BATCH-4, BATCH-6: rows accept and end differently; few or all run at once."""
    engine = Engine(shared_target(), DRAFTERS[name](), max_draft=5, max_batch=max_batch)
    for result, expected in zip(collect(engine, mixed()), alone(), strict=True):
        assert_same(result, expected)


@pytest.mark.parametrize("architecture", ["mistral", "gpt2", "mixtral"])
def test_batches_are_the_same_in_other_architectures(architecture: str) -> None:
    target = shared_target(architecture)
    for drafter in (None, random_trees(VOCAB), draft_model("noisy", architecture)):
        found = collect(Engine(target, drafter, max_draft=5, max_batch=3), mixed()[:5])
        for request, result in zip(mixed(), found, strict=False):
            assert_same(result, decode(target, request))


@pytest.mark.parametrize("rule", ["match", "rejection", "block", "traversal"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_neighbours_change_neither_ids_nor_acceptance(temperature: float, rule: Rule) -> None:
    """BATCH-4: one request alone, and with five others."""
    wanted = [
        make_request(random_ids(6 + i, i), temperature=temperature, seed=3, max_new_tokens=16)
        for i in range(6)
    ]
    drafter = draft_model("noisy")
    single = decode(shared_target(), wanted[2], drafter, rule=rule)
    engine = Engine(shared_target(), drafter, rule=rule, max_draft=5)
    together = collect(engine, wanted)[2]
    assert_same(together, single)
    assert together.stats.accepted_at == single.stats.accepted_at
    assert together.stats.proposed_at == single.stats.proposed_at


def _right_and_wrong(roles: Callable[[int, int], str]) -> tuple[ScriptedDrafter, ScriptedTarget]:
    """Return a drafter that plays a role for each request (its first id) and place in the text."""
    text = random_ids(24, 9)

    def propose(context: tuple[int, ...], budget: int) -> DraftTree:
        place = len(context) - 1
        role = roles(context[0], place)
        if role == "silent":
            return NO_DRAFT
        right = text[place : place + budget]
        return DraftTree.chain([(t + (role == "wrong")) % VOCAB for t in right])

    return ScriptedDrafter(propose), ScriptedTarget.saying(text, VOCAB)


ROLES: dict[str, Callable[[int, int], str]] = {
    "one right, one wrong": lambda who, _: "right" if who == 0 else "wrong",
    "one drafts, one does not": lambda who, _: "right" if who == 0 else "silent",
    "taking turns": lambda who, place: "right" if (who + place) % 2 else "silent",
    "all silent after a while": lambda _, place: "right" if place < 8 else "silent",
    "all wrong": lambda *_: "wrong",
}


@pytest.mark.parametrize("case", ROLES)
def test_drafts_of_one_row_are_no_drafts_of_another(case: str) -> None:
    """BATCH-1, BATCH-2, BATCH-5: empty drafts are no placeholders, for one row or for all."""
    drafter, target = _right_and_wrong(ROLES[case])
    wanted = [make_request((who,), max_new_tokens=24) for who in (0, 1, 2)]
    found = collect(Engine(target, drafter, max_draft=4), wanted)
    for request, result in zip(wanted, found, strict=True):
        assert_same(result, decode(target, request))
    single = decode(target, wanted[0], drafter, max_draft=4)
    assert found[0].stats.proposed_at == single.stats.proposed_at


def test_a_request_that_ends_makes_room_at_once() -> None:
    target = ScriptedTarget.saying([5, 6, 7], VOCAB)
    wanted = [make_request((1,), max_new_tokens=count) for count in (2, 6, 2, 2)]
    collect(Engine(target, max_batch=2), wanted)
    assert [len(part) for part in target.passes] == [2] * 6
    assert not target.held


def test_a_batch_of_one_runs_request_after_request() -> None:
    wanted = [make_request((1,), max_new_tokens=count) for count in (2, 1, 3)]
    run = Engine(ScriptedTarget.saying([5], VOCAB), max_batch=1).run(wanted)
    assert [index for index, _, _ in run] == [0, 0, 1, 2, 2, 2]


def test_no_request_is_no_work() -> None:
    target = ScriptedTarget.saying([5], VOCAB)
    assert list(Engine(target, oracle([5], 1)).run([])) == []
    assert target.passes == []
