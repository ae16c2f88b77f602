"""What a child is worth is measured: by its rank, by how sure the drafter was, and of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from outrider.trees.ranks import RankRecord
from outrider.types import DraftTree

LAW = torch.tensor([0.0, 0.5, 0.2, 0.1, 0.1, 0.1])
TREE = DraftTree((1, 2, 3, 4, 5), (-1, -1, -1, 0, 0), LAW.expand(5, -1))


def test_the_child_that_was_accepted_counts_at_its_rank() -> None:
    record = RankRecord(4)
    before = record.chances
    for _ in range(200):
        record.learn(TREE, (2, 9))
    after = record.chances
    assert after[1] > 0.85 > before[1]
    assert after[0] < before[0]


def test_every_level_that_was_reached_counts_once() -> None:
    once, twice = RankRecord(4), RankRecord(4)
    for _ in range(100):
        once.learn(TREE, (1,))
        twice.learn(TREE, (1, 5))
    assert twice.chances[1] > once.chances[1]  # 5 is a second child
    assert twice.chances[0] < once.chances[0]


def test_a_rank_that_was_not_drawn_learns_nothing() -> None:
    record = RankRecord(4)
    before = record.chances
    for _ in range(50):
        record.learn(TREE, (1,))
    assert record.chances[3] == before[3]


def test_a_level_without_the_token_ends_the_trial() -> None:
    record, other = RankRecord(4), RankRecord(4)
    record.learn(TREE, (9, 1, 1))
    other.learn(TREE, (9,))
    assert record.chances == other.chances


def test_an_empty_draft_says_nothing() -> None:
    record = RankRecord(3)
    before = record.chances
    record.learn(DraftTree(), (1, 2))
    assert record.chances == before


def test_a_law_that_is_sure_of_itself_is_told_from_one_that_is_not() -> None:
    record = RankRecord(2)
    for peak, right in ((0.9, 0), (0.4, 1)) * 200:
        law = torch.tensor([peak, (1 - peak) / 2, (1 - peak) / 2])
        record.learn(DraftTree((0, 1), (-1, -1), law.expand(2, -1)), (right,))
    sure, unsure = record.foreseen([0.9, 0.4])
    assert sure[0] > 0.85 > 0.2 > sure[1]
    assert unsure[0] < 0.2


def test_a_likely_child_is_told_from_an_unlikely_one_of_its_rank() -> None:
    record = RankRecord(2)
    law = torch.tensor([0.8, 0.1, 0.1])
    for token, right in ((0, 0), (1, 9)) * 200:
        record.learn(DraftTree((token,), (-1,), law[None]), (right,))
    assert record.drawn(0, 0.8) > 0.85 > 0.2 > record.drawn(0, 0.1)


def test_what_is_foreseen_never_rises_with_the_rank() -> None:
    record = RankRecord(3)
    for _ in range(200):
        record.learn(TREE, (3,))
    (row,) = record.foreseen([0.5])
    assert (np.diff(row) <= 0).all()


@pytest.mark.parametrize("levels", [0, 1, 3])
def test_a_descent_holds_the_likeliest_nodes_below_and_the_node_itself(levels: int) -> None:
    descent = RankRecord(3).descent(10, levels)
    assert descent[0] == 1
    assert (np.diff(descent) <= 0).all()
    assert len(descent) == min(11, 1 + sum(3**level for level in range(1, levels + 1)))


def test_a_drafter_that_is_right_at_once_foresees_more_below_a_node_than_a_poor_one() -> None:
    good, poor = RankRecord(3), RankRecord(3)
    for _ in range(500):
        good.learn(TREE, (1, 4))
        for token in (1, 2, 3, 9):
            poor.learn(TREE, (token,))
    assert good.descent(4, 4)[3] > 2 * poor.descent(4, 4)[3]
