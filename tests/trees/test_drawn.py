"""Trees that are drawn grow by what was drawn above them, and by nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from outrider.trees.drawn import DrawnGrowth
from outrider.trees.layout import children, depths, row_paths
from outrider.trees.ranks import RankRecord
from outrider.types import NO_DRAFT, ROOT, DraftTree

SURE, UNSURE = torch.tensor([0.9, 0.06, 0.04]), torch.tensor([0.4, 0.35, 0.25])


def taught(width: int) -> RankRecord:
    """Return a record by which a sure drafter is right at once, and an unsure one hardly ever."""
    record = RankRecord(width)
    for step in range(400):
        right = (0,) if step % 10 else (9,)
        record.learn(DraftTree((0, 1, 2), (-1, -1, -1), SURE.expand(3, -1)), right)
        record.learn(DraftTree((0, 1, 2), (-1, -1, -1), UNSURE.expand(3, -1)), (step % 5,))
        record.learn(DraftTree((1,), (-1,), SURE[None]), (9,))
    return record


def grow(growth: DrawnGrowth, seed: int) -> None:
    """Draw level after level, from laws that follow from the path of a node."""
    noise = torch.Generator().manual_seed(seed)
    while growth.frontier:
        laws = torch.stack([_law(path) for path in growth.paths()])
        drawn = torch.multinomial(laws, min(3, *growth.counts), generator=noise)
        tokens: list[list[int]] = drawn.tolist()
        growth.add(tokens, laws.gather(1, drawn).tolist(), laws)


def _law(path: Sequence[int]) -> Tensor:
    return UNSURE if sum(path) % 2 else SURE


@given(st.integers(0, 30), st.integers(0, 5), st.integers(1, 3), st.integers(0, 9))
def test_a_drawn_tree_keeps_to_its_bounds_and_carries_the_law_of_each_parent(
    budget: int, depth: int, width: int, seed: int
) -> None:
    growth = DrawnGrowth(taught(width), budget, depth)
    grow(growth, seed)
    tree = growth.tree(budget)
    assert len(tree) <= budget
    assert max(depths(tree), default=0) <= depth
    assert tree.chances is None
    paths = row_paths(tree)
    for row, below in enumerate(children(tree)):
        assert len(below) <= width
        for node in below:
            assert tree.q is not None
            assert torch.equal(tree.q[node], _law(paths[row]))


@given(st.integers(1, 12), st.integers(0, 9))
def test_a_drawn_tree_uses_its_whole_budget_where_there_is_anything_to_draw(
    budget: int, seed: int
) -> None:
    growth = DrawnGrowth(RankRecord(3), budget, 6)
    grow(growth, seed)
    assert len(growth.tokens) == budget


def test_a_sure_law_gets_few_children_and_an_unsure_one_many() -> None:
    counts = []
    for law in (SURE, UNSURE):
        growth = DrawnGrowth(taught(3), 4, 4)
        growth.add([[0, 1, 2]], [law.tolist()], law[None])
        counts.append(len(growth.tokens))
    assert counts[0] < counts[1]


def test_how_many_children_there_are_depends_on_none_of_them() -> None:
    """DIST-4: a count that looked at the draw would spoil the rule that rejects."""
    counts = set()
    for tokens in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        growth = DrawnGrowth(taught(3), 5, 3)
        growth.add([tokens], [UNSURE[tokens].tolist()], UNSURE[None])
        counts.add(len(growth.tokens))
    assert len(counts) == 1


def test_below_a_token_drawn_against_the_odds_less_is_drawn() -> None:
    shares = []
    for first, other in ((0, 1), (1, 0)):
        growth = DrawnGrowth(taught(3), 12, 3)
        growth.add([[first, other, 2]], [SURE[[first, other, 2]].tolist()], SURE[None])
        laws = UNSURE.expand(len(growth.frontier), -1)
        growth.add([[0, 1, 2]] * len(laws), [UNSURE.tolist()] * len(laws), laws)
        below = [parent for parent in growth.parents if parent != ROOT]
        shares.append(below.count(0) / len(below))
    assert shares[0] > shares[1]


def test_a_width_of_one_draws_a_chain() -> None:
    growth = DrawnGrowth(RankRecord(1), 4, 6)
    grow(growth, seed=1)
    assert growth.parents == [-1, 0, 1, 2]


def test_where_fewer_tokens_are_possible_fewer_are_drawn() -> None:
    growth = DrawnGrowth(RankRecord(3), 3, 1)
    growth.add([[4]], [[1.0]], torch.eye(5)[4:])
    assert growth.tokens == [4]
    assert growth.frontier == []


def test_a_draft_that_was_not_drawn_is_refused_and_one_that_was_is_never_cut() -> None:
    growth = DrawnGrowth(RankRecord(2), 2, 1)
    with pytest.raises(ValueError, match="needs the laws"):
        growth.add([[1]], [[0.5]])
    growth.add([[1, 2]], [[0.5, 0.2]], torch.rand(1, 3))
    with pytest.raises(ValueError, match="2 sampled nodes where 1 were asked for"):
        growth.tree(1)
    assert DrawnGrowth(RankRecord(2), 0, 2).tree(0) is NO_DRAFT
