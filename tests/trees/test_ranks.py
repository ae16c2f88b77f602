"""Shapes from what was measured, rank by rank."""

from __future__ import annotations

from outrider.trees.ranks import RankRecord
from outrider.types import DraftTree

TREE = DraftTree((1, 2, 3, 4, 5), (-1, -1, -1, 0, 0))


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


def test_a_drafter_that_is_right_at_once_gets_deep_trees_and_a_poor_one_wide_ones() -> None:
    good, poor = RankRecord(6), RankRecord(6)
    for _ in range(500):
        good.learn(TREE, (1, 4))
        for token in (1, 2, 3, 9):
            poor.learn(TREE, (token,))
    assert good.shape(12, 6).depth > poor.shape(12, 6).depth


def test_a_shape_keeps_to_its_bounds_and_leaves_out_no_rank() -> None:
    record = RankRecord(5)
    for nodes in (1, 2, 7, 40):
        shape = record.shape(nodes, 4)
        assert len(shape) <= nodes
        assert shape.depth <= 4
        assert shape.has_all_ranks
