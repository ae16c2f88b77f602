"""Whatever is chosen, and on whatever grounds, the text is the same and its law is the target's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from outrider.drafters.base import Drafter
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.engine.drafting import MeasuredDrafting
from outrider.engine.engine import Engine
from outrider.engine.offer import Offer
from outrider.engine.request import Request
from outrider.engine.result import Result
from outrider.types import ROOT, DraftTree
from support.laws import ALARM, NEAR_LOGITS, TARGET_LOGITS, VOCABULARY, chi_square_excess
from support.runs import assert_same, collect, draft_model, make_request, shared_target
from support.scripted import SamplingDrafter, ScriptedDrafter, ScriptedTarget, oracle, random_trees
from support.simulated import SimulatedClock, on_clock
from support.tiny import VOCAB, random_ids

MODES: dict[str, dict[str, Any]] = {"greedy": {}, "sampled": {"temperature": 1.0, "seed": 11}}


class ErraticClock:
    """A clock that ticks as it likes, so that costs are learnt that mean nothing."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._now = 0.0

    def __call__(self) -> float:
        self._now += self._random.choice([0.0, 1e-6, 1e-3, 1e-3, 0.1]) * self._random.random()
        return self._now


class Boasting(ScriptedDrafter):
    """Grows random trees with random chances."""

    def __init__(self, seed: int, *, is_lookup: bool) -> None:
        self.is_lookup = is_lookup
        self.name = "boasting"
        random = Random(seed)
        trees = random_trees(VOCAB, seed)

        def propose(context: tuple[int, ...], budget: int) -> DraftTree:
            tree = trees._propose(context, budget)
            chances: list[float] = []
            for parent in tree.parents:
                reached = 1.0 if parent == ROOT else chances[parent]
                chances.append(reached * random.random())
            return DraftTree(tree.tokens, tree.parents, None, tuple(chances))

        super().__init__(propose)


def likely_text(seed: int) -> list[Drafter[Any]]:
    """Return a drafter that knows the greedy text of the first request."""
    return [oracle([*plain("greedy")[0].token_ids], 5)]


ROUTERS: dict[str, Callable[[int], list[Drafter[Any]]]] = {
    "lookups": lambda _: [SuffixDrafter(max_shared_tokens=64), NgramDrafter(min_ngram=1)],
    "model": lambda _: [draft_model("noisy")],
    "model and lookups": lambda _: [draft_model("noisy"), SuffixDrafter(), NgramDrafter()],
    "two models": lambda _: [draft_model("unrelated"), draft_model("exact")],
    "boasting": lambda seed: [Boasting(seed, is_lookup=True), Boasting(seed + 1, is_lookup=False)],
    "knowing": likely_text,
}


def requests(mode: str) -> list[Request]:
    prompts = (random_ids(5, 1), random_ids(12, 2) * 2, random_ids(9, 3), random_ids(4, 4) * 3)
    return [make_request(prompt, max_new_tokens=24, **MODES[mode]) for prompt in prompts]


@functools.cache
def plain(mode: str) -> list[Result]:
    return collect(Engine(shared_target()), requests(mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ROUTERS)
def test_no_choice_changes_the_text(name: str, seed: int, mode: str) -> None:
    """With costs that are nonsense, in batches of any size."""
    clock = ErraticClock(seed)
    engine = Engine(shared_target(), ROUTERS[name](seed), clock=clock, max_batch=1 + seed)
    for _ in range(2):
        for result, expected in zip(collect(engine, requests(mode)), plain(mode), strict=True):
            assert_same(result, expected)
            assert result.stats.drafter_error is None


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
@pytest.mark.parametrize("name", ["lookups", "model and lookups"])
def test_greedy_text_is_the_same_under_the_rules_that_reject(name: str, rule: Any) -> None:
    engine = Engine(shared_target(), ROUTERS[name](0), rule=rule, clock=ErraticClock(5))
    for result, expected in zip(collect(engine, requests("greedy")), plain("greedy"), strict=True):
        assert_same(result, expected)


def test_something_is_drafted_when_nothing_costs_time() -> None:
    """The tests above would hold of an engine that never drafts."""
    text = random_ids(40, 2)
    clock = SimulatedClock()
    target = on_clock(ScriptedTarget.saying(text, VOCAB), clock)
    engine = Engine(target, [Boasting(3, is_lookup=True), oracle(text, 1)], clock=clock)
    (result,) = collect(engine, [make_request((1,), max_new_tokens=40)])
    assert result.token_ids == text
    assert result.stats.accepted > 20


# -- drafts that are sampled -----------------------------------------------------------------------


class Recorder(SamplingDrafter):
    """Keeps what it was asked for and what it proposed."""

    def __init__(self) -> None:
        super().__init__(NEAR_LOGITS)
        self.asked: list[int] = []
        self.proposals: list[DraftTree] = []

    def propose(self, states: Sequence[Any], budgets: Sequence[int]) -> list[DraftTree]:
        trees = super().propose(states, budgets)
        self.asked += budgets
        self.proposals += trees
        return trees


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
def test_sampled_drafts_are_asked_for_once_and_scored_whole(rule: Any) -> None:
    """DIST-4: the length is settled before a token is drawn."""
    drafter = Recorder()
    clock = SimulatedClock()
    target = on_clock(ScriptedTarget(TARGET_LOGITS, VOCABULARY), clock)
    engine = Engine(target, drafter, rule=rule, clock=clock)
    wanted = [
        make_request((1, 2), temperature=1.0, seed=seed, max_new_tokens=60) for seed in range(4)
    ]
    collect(engine, wanted)
    scored = [part.tree for rows in target.passes for part in rows if len(part.tree)]
    assert len(scored) > 20
    assert all(tree.q is not None for tree in scored)
    assert [id(tree) for tree in scored] == [id(tree) for tree in drafter.proposals]
    assert [len(tree) for tree in scored] == drafter.asked


@pytest.mark.parametrize("rule", ["match", "rejection", "block", "traversal"])
def test_lengths_that_are_chosen_leave_the_law_of_sampled_text_alone(rule: Any) -> None:
    drafter = SamplingDrafter(NEAR_LOGITS)
    for clock in (None, ErraticClock(6)):
        assert abs(chi_square_excess(rule, drafter, "auto", clock=clock)) < ALARM


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
def test_the_law_check_notices_drafts_that_are_cut_by_the_token_drawn(
    rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DIST-4"""
    draft = MeasuredDrafting._draft

    def cutting(self: Any, member: Any, states: Any, decision: Any, drafts: Any) -> float:
        seconds = draft(self, member, states, decision, drafts)
        for i, offer in enumerate(drafts):
            if offer is not None and offer.is_whole and offer.tree.tokens[0] in (0, 1):
                drafts[i] = Offer.of_tree(offer.seat, DraftTree())
        return seconds

    monkeypatch.setattr(MeasuredDrafting, "_draft", cutting)
    drafter = SamplingDrafter(NEAR_LOGITS)
    drafter.default_max_draft = 1  # so that every drafted token is one that may be cut
    assert chi_square_excess(rule, drafter, "auto") > 2 * ALARM


def test_a_lookup_drafter_may_not_draw() -> None:
    class Drawing(SamplingDrafter):
        is_lookup = True

    engine = Engine(ScriptedTarget(TARGET_LOGITS, VOCABULARY), Drawing(NEAR_LOGITS), rule="block")
    with pytest.warns(UserWarning, match="q proposed by a lookup drafter"):
        collect(engine, [make_request((1, 2), temperature=1.0, max_new_tokens=9)])


def test_only_what_a_lookup_drafter_proposed_is_scored_and_no_more_than_it_is_worth() -> None:
    """A sub-tree: every node with its parent."""
    boasting = Boasting(3, is_lookup=True)
    clock = SimulatedClock()
    target = on_clock(ScriptedTarget.saying(random_ids(40, 2), VOCAB), clock)
    engine = Engine(target, boasting, clock=clock)
    collect(engine, [make_request((1,), max_new_tokens=60)])
    scored = [part.tree for rows in target.passes for part in rows if len(part.tree)]
    assert scored
    paths = {tuple(_path(tree, node)) for tree in boasting.proposals for node in range(len(tree))}
    for tree in scored:
        assert all(tuple(_path(tree, node)) in paths for node in range(len(tree)))
        assert tree.chances is not None


def _path(tree: DraftTree, node: int) -> list[int]:
    parent = tree.parents[node]
    return [*([] if parent == ROOT else _path(tree, parent)), tree.tokens[node]]
