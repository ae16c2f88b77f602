"""How likely drafts are to be accepted, by depth and by the drafter's own chances."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.engine.acceptance import DEPTHS, Acceptance, AcceptancePool
from outrider.engine.trial import Trial
from outrider.types import ROOT, DraftTree


def draft(acceptance: Acceptance, right: int, length: int) -> None:
    """Let a chain of `length` tokens have its first `right` ones accepted."""
    tokens = [7] * right + [8]
    Trial(DraftTree.chain([7] * length), acceptance).follow(tokens)
    acceptance.age(len(tokens))


@pytest.mark.parametrize("rate", [0.1, 0.4, 0.8])
def test_the_rates_of_a_steady_drafter_are_learnt(rate: float) -> None:
    source = Random(0)
    acceptance = Acceptance(AcceptancePool())
    found = []
    for _ in range(400):
        right = 0
        while right < 6 and source.random() < rate:
            right += 1
        draft(acceptance, right, 6)
        found.append(acceptance.survival(2))
    means = [sum(each) / len(found) for each in zip(*found, strict=True)]
    assert means == pytest.approx([rate, rate**2], abs=0.05)


def test_rates_are_conditional_on_the_tokens_before() -> None:
    """SERVE-1: a token after a rejected one was never tried."""
    acceptance = Acceptance(AcceptancePool())
    for _ in range(50):
        draft(acceptance, 2, 5)
    first, second, third, *_ = acceptance.survival(5)
    assert first > 0.9 and second > 0.8
    assert third < 0.2


def test_one_bad_round_says_little_and_one_good_round_much() -> None:
    good, bad = Acceptance(AcceptancePool()), Acceptance(AcceptancePool())
    for _ in range(20):
        draft(good, 6, 6)
        draft(bad, 0, 6)
    assert good.survival(1)[0] > 0.9
    assert bad.survival(1)[0] < 0.1
    draft(good, 0, 6)
    draft(bad, 6, 6)
    assert good.survival(1)[0] > 0.8
    assert sum(bad.survival(6)) > 0.9


def test_a_claim_that_holds_again_is_believed_again() -> None:
    acceptance = Acceptance(AcceptancePool())
    tree = DraftTree.chain([7] * 6, chances=[0.9**i for i in range(1, 7)])
    for _ in range(20):
        Trial(tree, acceptance).follow([8])
    assert sum(acceptance.tree_survival(tree)) < 0.15
    Trial(tree, acceptance).follow([7] * 6)
    assert sum(acceptance.tree_survival(tree)) > 0.9


def test_a_request_begins_with_what_others_have_learnt_and_goes_its_own_way() -> None:
    pool = AcceptancePool()
    other = Acceptance(pool)
    for _ in range(100):
        draft(other, 4, 4)
    fresh = Acceptance(pool)
    assert fresh.survival(1)[0] > 0.9
    for _ in range(6):
        draft(fresh, 0, 4)
    assert fresh.survival(1)[0] < 0.6 < other.survival(1)[0]


def test_old_trials_fade() -> None:
    acceptance = Acceptance(AcceptancePool())
    for _ in range(20):
        draft(acceptance, 0, 4)
    before = acceptance.survival(1)[0]
    acceptance._pool = AcceptancePool()
    acceptance.age(10_000)
    assert before < 0.1
    assert acceptance.survival(1)[0] == pytest.approx(0.6, abs=0.01)
    draft(acceptance, 4, 4)  # counts still add up after the scale was renewed
    assert acceptance.survival(1)[0] > 0.6


@pytest.mark.parametrize(("claimed", "actual"), [(0.9, 0.3), (0.5, 0.9), (0.7, 0.7)])
def test_chances_are_corrected_by_how_often_they_prove_right(claimed: float, actual: float) -> None:
    source = Random(2)
    acceptance = Acceptance(AcceptancePool())
    tree = DraftTree.chain([7, 7], chances=[claimed, claimed**2])
    for _ in range(400):
        tokens = [7 if source.random() < actual else 8 for _ in range(2)]
        Trial(tree, acceptance).follow(tokens)
        acceptance.age(2)
    expected = [actual, actual**2]
    assert acceptance.tree_survival(tree) == pytest.approx(expected, abs=0.15)


def test_other_chances_than_those_that_failed_keep_their_word() -> None:
    acceptance = Acceptance(AcceptancePool())
    for _ in range(50):
        Trial(DraftTree.chain([7], chances=[0.3]), acceptance).follow([8])
        Trial(DraftTree.chain([7], chances=[0.9]), acceptance).follow([7])
    (low,) = acceptance.tree_survival(DraftTree.chain([7], chances=[0.3]))
    (high,) = acceptance.tree_survival(DraftTree.chain([7], chances=[0.9]))
    assert low < 0.1
    assert high > 0.9


TREES = st.lists(st.integers(0, 100), max_size=12).map(
    lambda picks: DraftTree(
        tuple(range(len(picks))), tuple(pick % (i + 1) - 1 for i, pick in enumerate(picks))
    )
)


@given(TREES, st.booleans(), st.lists(st.lists(st.integers(0, 11), max_size=6), max_size=6))
def test_no_node_is_likelier_than_its_parent(
    tree: DraftTree, claims: bool, texts: list[list[int]]
) -> None:
    if claims:
        chances: list[float] = []
        for parent in tree.parents:
            chances.append(0.7 * (1.0 if parent == ROOT else chances[parent]))
        tree = DraftTree(tree.tokens, tree.parents, None, tuple(chances))
    acceptance = Acceptance(AcceptancePool())
    for text in texts:
        Trial(tree, acceptance).follow(text)
    found = acceptance.tree_survival(tree)
    for node, parent in enumerate(tree.parents):
        assert 0 <= found[node] <= (1.0 if parent == ROOT else found[parent])


def test_siblings_share_what_their_depth_is_worth() -> None:
    acceptance = Acceptance(AcceptancePool())
    one = acceptance.survival(1)[0]
    found = acceptance.tree_survival(DraftTree((1, 2, 3), (ROOT, ROOT, ROOT)))
    assert sum(found) == pytest.approx(one)
    assert found == sorted(found, reverse=True)


def test_the_deepest_nodes_count_together() -> None:
    acceptance = Acceptance(AcceptancePool())
    draft(acceptance, DEPTHS + 5, DEPTHS + 8)
    assert len(acceptance.survival(DEPTHS + 8)) == DEPTHS + 8


def test_a_pool_survives_being_written_down() -> None:
    pool = AcceptancePool()
    acceptance = Acceptance(pool)
    for right in (3, 0, 5, 2):
        draft(acceptance, right, 5)
    Trial(DraftTree.chain([1], chances=[0.4]), acceptance).follow([1])
    copy = AcceptancePool.from_dict(json.loads(json.dumps(pool.to_dict())))
    assert copy.to_dict() == pool.to_dict()
    assert Acceptance(copy).survival(5) == Acceptance(pool).survival(5)
    damages: list[dict[str, list[float]]] = [{"level": [1]}, {"by_depth": []}, {"level": [-1, 2]}]
    for damage in damages:
        with pytest.raises(ValueError):
            AcceptancePool.from_dict(pool.to_dict() | damage)
