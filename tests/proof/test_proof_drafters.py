"""Drafters that a proof brings along: what they draft, and that it is what they say it is."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from outrider.drafters.base import DraftRequest
from outrider.engine.proposal import check_proposal
from outrider.proof.drafters import ContraryDrafter, LikelyDrafter, TellingDrafter
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.trees.layout import row_paths
from outrider.trees.shape import TreeShape
from outrider.types import DraftTree

TEXT = tuple(range(10, 40))
SHAPE = TreeShape.of_paths([(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)])
LOGITS = torch.tensor([3.0, 2.0, 1.0, 0.0, -5.0])


def request(rule: str = "match") -> DraftRequest:
    sampler = KeyedDraftSampler(1.0, KeyedNoise(3), rule, vocab_size=64)  # type: ignore[arg-type]
    return DraftRequest((1, 2), 60, sampler, prediction_ids=TEXT)


def told(width: int, budget: int) -> list[tuple[int, DraftTree]]:
    """Return a draft for each place of the text."""
    drafter = TellingDrafter(64, width=width)
    state = drafter.begin(request())
    drafts = []
    for place, token in enumerate(TEXT):
        drafts.append((place, drafter.propose([state], [budget])[0]))
        drafter.observe([state], [[token]])
    return drafts


@pytest.mark.parametrize(("width", "budget"), [(1, 7), (3, 24), (3, 1)])
def test_told_drafts_keep_the_contract_and_are_often_right_and_sometimes_wrong(
    width: int, budget: int
) -> None:
    right = wrong = 0
    for place, tree in told(width, budget):
        check_proposal(tree, budget, 64)
        assert tree.is_chain or width > 1
        ahead = TEXT[place:]
        for path in row_paths(tree)[1:]:
            is_right = path == ahead[: len(path)]
            right, wrong = right + is_right, wrong + (not is_right)
    assert right > 10
    assert wrong > 5


def test_told_trees_branch_and_reach_deep_on_the_text() -> None:
    depths = [
        max(len(path) for path in row_paths(tree) if path == TEXT[place : place + len(path)])
        for place, tree in told(3, 24)
    ]
    assert max(depths) >= 4
    assert any(not tree.is_chain for _, tree in told(3, 24))


def test_a_told_draft_at_a_place_is_the_same_whenever_it_is_asked_for() -> None:
    first, second = ([tree.tokens for _, tree in told(3, 12)] for _ in range(2))
    assert first == second


def test_who_was_told_nothing_drafts_nothing() -> None:
    drafter = TellingDrafter(64)
    state = drafter.begin(DraftRequest((1,), 9, request().sampler))
    assert len(drafter.propose([state], [5])[0]) == 0


def test_likely_drafts_are_the_highest_logits_of_their_own_context() -> None:
    def logits(context: tuple[int, ...]) -> torch.Tensor:
        return LOGITS if context[-1] == 2 else LOGITS.flip(0)

    drafter = LikelyDrafter(logits, SHAPE)
    state = drafter.begin(request())
    (tree,) = drafter.propose([state], [6])
    assert row_paths(tree)[1:] == [(0,), (1,), (0, 4), (0, 3), (1, 4), (1, 3)]
    assert len(drafter.propose([state], [2])[0]) == 2
    drafter.observe([state], [[0]])
    assert drafter.propose([state], [1])[0].tokens == (4,)


@pytest.mark.parametrize("is_false", [False, True])
def test_contrary_drafts_are_drawn_from_the_law_they_tell_unless_they_lie(is_false: bool) -> None:
    drafter = ContraryDrafter(lambda _: LOGITS, SHAPE, support=4, is_false=is_false)
    sampler = KeyedDraftSampler(1.0, KeyedNoise(3), "rejection", vocab_size=5)
    state = drafter.begin(DraftRequest((1, 2), 60, sampler))
    drafts = [drafter.propose([state], [6])[0] for _ in range(400)]
    for tree in drafts:
        check_proposal(tree, 6, 5)
    q = drafts[0].q
    assert q is not None
    first = Counter(tree.tokens[0] for tree in drafts)
    shares = torch.tensor([first[token] / len(drafts) for token in range(5)])
    turned = torch.tensor([0.0, 1.0, 2.0, 3.0, -torch.inf]).softmax(-1)
    assert float((shares - turned).abs().max()) < 0.1
    assert torch.allclose(q[0], turned, atol=1e-6) is not is_false


def test_contrary_drafts_need_a_rule_that_rejects() -> None:
    drafter = ContraryDrafter(lambda _: LOGITS, SHAPE, support=4)
    assert len(drafter.propose([drafter.begin(request("match"))], [6])[0]) == 0
