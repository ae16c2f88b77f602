"""A drafter's faults cost speed at most: the text is plain's, and a warning says what happened."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.engine.engine import Engine
from outrider.errors import DrafterWarning, NumericsError
from outrider.types import DraftTree, TokenIds
from support.runs import assert_same, collect, decode, draft_model, make_request, shared_target
from support.scripted import ScriptedDrafter, ScriptedTarget, oracle, silent
from support.tiny import VOCAB, random_ids

TEXT = random_ids(30, 5)
REQUEST = make_request((1,), max_new_tokens=30)


def saying() -> ScriptedTarget:
    return ScriptedTarget.saying(TEXT, VOCAB)


class Faulty(ScriptedDrafter):
    """Knows the text, and raises in one of its methods at one of its calls."""

    def __init__(self, method: str, call: int) -> None:
        super().__init__(oracle(TEXT, 1)._propose)
        self._fault = method, call
        self._calls = 0

    def _count(self, method: str) -> None:
        if method == self._fault[0]:
            self._calls += 1
            if self._calls == self._fault[1]:
                raise ZeroDivisionError(f"{method} fails")

    def begin(self, request: DraftRequest) -> list[int]:
        self._count("begin")
        return super().begin(request)

    def propose(self, states: Sequence[list[int]], budgets: Sequence[int]) -> list[DraftTree]:
        self._count("propose")
        return super().propose(states, budgets)

    def observe(
        self,
        states: Sequence[list[int]],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        self._count("observe")
        super().observe(states, committed, features)

    def end(self, state: list[int]) -> None:
        super().end(state)
        self._count("end")


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("method", ["begin", "propose", "observe", "end"])
def test_a_drafter_that_raises_is_dropped_and_the_text_is_plains(method: str, call: int) -> None:
    plain = decode(saying(), REQUEST)
    drafter = Faulty(method, call)
    target = saying()
    engine = Engine(target, drafter, max_draft=4)
    with pytest.warns(DrafterWarning, match=f"scripted raised ZeroDivisionError: {method} fails"):
        found = collect(engine, [REQUEST] * 2)
    for result in found:
        assert_same(result, plain)
    assert any("ZeroDivisionError" in (r.stats.drafter_error or "") for r in found)
    assert drafter.open_states == 0
    assert not target.held


def test_one_request_that_begins_badly_leaves_the_drafts_of_others() -> None:
    with pytest.warns(DrafterWarning):
        found = collect(Engine(saying(), Faulty("begin", 2), max_draft=4), [REQUEST] * 3)
    assert [result.stats.rounds for result in found] == [6, 30, 6]


def _without_mass(tree: DraftTree) -> DraftTree:
    return DraftTree(tree.tokens, tree.parents, torch.zeros(len(tree), VOCAB))


BAD_TREES: dict[str, tuple[Callable[[int], Any], str]] = {
    "over budget": (lambda budget: DraftTree.chain([1] * (budget + 1)), "were asked for"),
    "beyond the vocabulary": (lambda _: DraftTree.chain([VOCAB]), "vocabulary ends at 63"),
    "placeholder": (lambda _: DraftTree.chain([-1]), "token -1"),
    "no integer": (lambda _: DraftTree.chain([2.0]), "is an int"),  # type: ignore[list-item]
    "a tensor": (lambda _: DraftTree.chain(torch.tensor([2])), "is an int"),  # type: ignore[arg-type]
    "twins": (lambda _: DraftTree((2, 2), (-1, -1)), "siblings"),
    "a list": (lambda _: [1, 2], "list proposed"),
    "nothing": (lambda _: None, "NoneType proposed"),
    "narrow q": (lambda _: DraftTree.chain([2], torch.full((1, 63), 1 / 63)), "q is"),
    "q without the token": (lambda _: _without_mass(DraftTree.chain([2])), "rules out"),
    "q of NaN": (lambda _: DraftTree.chain([2], torch.full((1, VOCAB), math.nan)), "no probab"),
    "q below 0": (lambda _: DraftTree.chain([2], torch.full((1, VOCAB), -0.1)), "no probab"),
}


@pytest.mark.parametrize("fault", BAD_TREES)
def test_a_draft_that_breaks_the_contract_is_never_scored(fault: str) -> None:
    """BATCH-2: no placeholder reaches the target, for one."""
    build, reason = BAD_TREES[fault]
    drafter = ScriptedDrafter(lambda _, budget: build(budget))
    with pytest.warns(DrafterWarning, match=reason):
        result = decode(saying(), REQUEST, drafter, rule="rejection", max_draft=4)
    assert_same(result, decode(saying(), REQUEST))
    assert result.stats.proposed == 0
    assert drafter.open_states == 0


def test_a_bad_draft_costs_only_its_own_request_its_drafter() -> None:
    def propose(context: tuple[int, ...], budget: int) -> DraftTree:
        if context[0] == 2:
            return DraftTree.chain([VOCAB])
        return oracle(TEXT, 1)._propose(context, budget)

    wanted = [make_request((first,), max_new_tokens=30) for first in (1, 2, 3)]
    with pytest.warns(DrafterWarning):
        found = collect(Engine(saying(), ScriptedDrafter(propose), max_draft=4), wanted)
    assert [result.stats.rounds for result in found] == [6, 30, 6]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_or_too_many_trees_are_no_drafts(count: int) -> None:
    class Miscounting(ScriptedDrafter):
        def propose(self, states: Sequence[list[int]], budgets: Sequence[int]) -> list[DraftTree]:
            return [DraftTree.chain([1])] * count

    engine = Engine(saying(), Miscounting(lambda *_: DraftTree()), max_draft=4)
    with pytest.warns(DrafterWarning, match=f"{count} trees proposed for 2 requests"):
        found = collect(engine, [REQUEST] * 2)
    for result in found:
        assert_same(result, decode(saying(), REQUEST))


def test_a_drafter_without_states_is_a_drafter_too() -> None:
    class Stateless(Drafter[None]):
        name = "stateless"

        def begin(self, request: DraftRequest) -> None:
            return None

        def propose(self, states: Sequence[None], budgets: Sequence[int]) -> list[DraftTree]:
            return [DraftTree.chain([7] * budget) for budget in budgets]

        def observe(
            self,
            states: Sequence[None],
            committed: Sequence[TokenIds],
            features: Sequence[Tensor] = (),
        ) -> None:
            pass

    target = ScriptedTarget.saying([7], VOCAB)
    result = decode(target, REQUEST, Stateless(), max_draft=4)
    assert (result.token_ids, result.stats.rounds) == ((7,) * 30, 6)


def test_a_drafter_is_told_every_emitted_token_and_let_go_once() -> None:
    class Recording(ScriptedDrafter):
        told: dict[int, list[int]]

        def observe(
            self,
            states: Sequence[list[int]],
            committed: Sequence[TokenIds],
            features: Sequence[Tensor] = (),
        ) -> None:
            super().observe(states, committed, features)
            for state in states:
                self.told[id(state)] = state

    for drafter in (Recording(oracle(TEXT, 1)._propose), Recording(silent()._propose)):
        drafter.told = {}
        found = collect(Engine(saying(), drafter, max_draft=3), [REQUEST] * 3)
        expected = [[1, *result.token_ids] for result in found]
        assert list(drafter.told.values()) == expected
        assert drafter.open_states == 0


@pytest.mark.parametrize("taken", [0, 1, 2, 5])
def test_a_reader_who_leaves_early_leaves_nothing_open(taken: int) -> None:
    """CACHE-10: target and drafter hold no state of requests that were abandoned."""
    drafter, target = oracle(TEXT, 1), saying()
    run = Engine(target, drafter, max_draft=4).run([REQUEST] * 2)
    for _ in range(taken):
        next(run)
    run.close()
    assert drafter.open_states == 0
    assert not target.held


def test_an_error_of_the_target_leaves_nothing_open() -> None:
    def logits(context: tuple[int, ...]) -> list[float]:
        return [math.nan] * VOCAB if len(context) > 9 else [1.0] * VOCAB

    drafter, target = silent(), ScriptedTarget(logits, VOCAB)
    with pytest.raises(NumericsError, match="position"):
        collect(Engine(target, drafter), [REQUEST] * 2)
    assert drafter.open_states == 0
    assert not target.held


@pytest.mark.parametrize("build", [NgramDrafter, SuffixDrafter, lambda: draft_model("noisy")])
def test_a_request_leaves_nothing_to_the_next_in_its_drafter(
    build: Callable[[], Drafter[Any]],
) -> None:
    """DRAFT-5: the second request's drafts are those it gets alone."""
    long = make_request(random_ids(40, 1) * 2, max_new_tokens=30)
    short = make_request(random_ids(6, 2) * 3, max_new_tokens=20)
    alone = decode(shared_target(), short, build())
    drafter = build()
    decode(shared_target(), long, drafter)
    after = decode(shared_target(), short, drafter)
    assert_same(after, alone)
    assert after.stats.proposed_at == alone.stats.proposed_at
    assert after.stats.accepted_at == alone.stats.accepted_at


@pytest.mark.parametrize("wrong", [False, True])
def test_every_round_makes_progress_whatever_is_proposed(wrong: bool) -> None:
    """DRAFT-6: drafts that are empty, or always wrong, end at the limit too."""
    drafter = ScriptedDrafter(
        lambda context, budget: DraftTree.chain([0] * budget if wrong else [])
    )
    target = ScriptedTarget.saying([5, 6, 7], VOCAB)
    result = decode(target, REQUEST, drafter, max_draft=4)
    assert result.finish_reason == "length"
    assert result.stats.rounds == len(result.token_ids) == 30
    assert result.stats.accepted == 0


def test_warnings_made_errors_still_leave_nothing_open() -> None:
    drafter, target = Faulty("propose", 2), saying()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DrafterWarning):
            collect(Engine(target, drafter, max_draft=4), [REQUEST] * 2)
    assert drafter.open_states == 0
    assert not target.held


def test_a_drafter_that_rests_is_told_later_of_many_rounds_at_once_and_misses_nothing() -> None:
    class Watching(ScriptedDrafter):
        feature_layers = (2,)

        def __init__(self) -> None:
            super().__init__(lambda _, budget: DraftTree.chain([0] * budget))
            self.told: list[tuple[int, Tensor]] = []

        def observe(
            self,
            states: Sequence[list[int]],
            committed: Sequence[TokenIds],
            features: Sequence[Tensor] = (),
        ) -> None:
            super().observe(states, committed, features)
            self.told.append((len(committed[0]), features[0].clone()))

    request = make_request(random_ids(9, 1), max_new_tokens=120)
    busy, idle = Watching(), Watching()
    decode(shared_target(), request, busy, max_draft=1)
    decode(shared_target(), request, idle, max_draft="auto")
    assert sum(count for count, _ in idle.told) == sum(count for count, _ in busy.told) == 120
    assert len(idle.told) < len(busy.told) / 2
    assert all(count == len(rows) for count, rows in idle.told[1:])
    told = [torch.cat([rows for _, rows in one.told]) for one in (busy, idle)]
    torch.testing.assert_close(told[0], told[1])
