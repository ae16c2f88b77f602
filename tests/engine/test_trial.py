"""Checking drafts against what is committed: in one go or token by token, scored or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.engine.acceptance import Acceptance, AcceptancePool
from outrider.engine.trial import Trial
from outrider.types import ROOT, DraftTree


def learnt(tree: DraftTree, *rounds: list[int]) -> AcceptancePool:
    pool = AcceptancePool()
    trial = Trial(tree, Acceptance(pool))
    for tokens in rounds:
        if not trial.follow(tokens):
            break
    return pool


def test_a_chain_is_tried_up_to_its_first_wrong_token() -> None:
    pool = learnt(DraftTree.chain([1, 2, 3, 4]), [1, 2, 9, 9])
    assert pool.by_depth[:4] == [[1, 1], [1, 1], [0, 1], [0, 0]]


def test_a_draft_that_ends_before_the_tokens_do_was_right_to_its_end() -> None:
    pool = learnt(DraftTree.chain([1, 2]), [1, 2, 9])
    assert pool.by_depth[:3] == [[1, 1], [1, 1], [0, 0]]


def test_a_trial_says_whether_it_goes_on() -> None:
    trial = Trial(DraftTree.chain([1, 2, 3]), Acceptance(AcceptancePool()))
    assert trial.follow([1])
    assert trial.follow([2])
    assert not trial.follow([3])
    assert not Trial(DraftTree.chain([1]), Acceptance(AcceptancePool())).follow([2])
    assert not Trial(DraftTree(), Acceptance(AcceptancePool())).follow([2])


def test_a_tree_is_followed_into_the_branch_that_was_taken() -> None:
    tree = DraftTree((1, 2, 3, 4), (ROOT, ROOT, 1, 2))
    pool = learnt(tree, [2, 3, 9])
    assert pool.by_depth[:3] == [[1, 1], [1, 1], [0, 1]]


def test_every_sibling_with_a_chance_was_tried() -> None:
    tree = DraftTree((1, 2, 3), (ROOT, ROOT, 1), None, (0.6, 0.3, 0.15))
    pool = learnt(tree, [2, 8])
    right = sum(cell[0] for cell in pool.by_chance)
    expected = sum(cell[1] for cell in pool.by_chance)
    assert right == 1
    assert expected == pytest.approx(0.6 + 0.3 + 0.5)  # 0.15 given that its parent was right
    assert pool.level == [0, 0]


@given(
    st.lists(st.integers(0, 1), max_size=8),
    st.lists(st.integers(0, 1), max_size=10),
    st.integers(0, 10),
)
def test_rounds_may_cut_the_text_anywhere(draft: list[int], text: list[int], cut: int) -> None:
    tree = DraftTree.chain(draft)
    assert learnt(tree, text[:cut], text[cut:]).to_dict() == learnt(tree, text).to_dict()
