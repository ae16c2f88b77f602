"""Leaves of a draft that go on with what comes next for sure."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.trees.runs import lengthen
from outrider.types import DraftTree

FORCED = {(1,): (5, 6, 7), (2,): (8,), (3, 4): (9,), (): (1,)}


def following(path: Sequence[int], limit: int) -> Sequence[int]:
    return FORCED.get(tuple(path), ())[:limit]


def test_every_leaf_goes_on_and_no_inner_node_does() -> None:
    tree = DraftTree((1, 2, 3, 4), (-1, -1, -1, 2))
    found = lengthen(tree, 99, following)
    assert found.tokens == (1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert found.parents == (-1, -1, -1, 2, 0, 4, 5, 1, 3)
    assert found.chances is None


def test_the_likeliest_leaf_comes_first_and_its_run_is_as_likely() -> None:
    tree = DraftTree((1, 2), (-1, -1), None, (0.2, 0.7))
    found = lengthen(tree, 4, following)
    assert found.tokens == (1, 2, 8, 5)
    assert found.parents == (-1, -1, 1, 0)
    assert found.chances == (0.2, 0.7, 0.7, 0.2)


def test_a_tree_that_is_full_or_followed_by_nothing_stays_as_it_is() -> None:
    full, other = DraftTree.chain((1,)), DraftTree.chain((6, 6))
    assert lengthen(full, 1, following) is full
    assert lengthen(other, 9, following) is other


def test_a_draft_of_nothing_stays_one() -> None:
    nothing = DraftTree()
    assert lengthen(nothing, 9, following) is nothing
