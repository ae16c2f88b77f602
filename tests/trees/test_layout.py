from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider.trees.layout import (
    ancestors,
    children,
    depths,
    likeliest_path,
    prune,
    row_paths,
)
from outrider.types import NO_DRAFT, ROOT, DraftTree

TREE = DraftTree(tokens=(7, 9, 8, 3, 4, 5), parents=(-1, -1, 0, 1, 2, 2))
"""
root -+- 0 (7) --- 2 (8) -+- 4 (4)
      |                   +- 5 (5)
      +- 1 (9) --- 3 (3)
"""


@st.composite
def forests(draw: st.DrawFn) -> DraftTree:
    count = draw(st.integers(0, 12))
    parents = tuple(draw(st.integers(ROOT, node - 1)) for node in range(count))
    tokens = tuple(draw(st.integers(0, 5)) for _ in range(count))
    return DraftTree(tokens, parents, torch.arange(count * 2.0).reshape(count, 2))


def lineage(tree: DraftTree, node: int) -> list[int]:
    """Walk up from a node, as slowly and plainly as can be."""
    found: list[int] = []
    while node != ROOT:
        found.insert(0, node)
        node = tree.parents[node]
    return found


def test_the_layout_of_a_small_tree_is_the_one_drawn_above() -> None:
    assert depths(TREE) == [1, 1, 2, 2, 3, 3]
    assert ancestors(TREE) == [[0], [1], [0, 2], [1, 3], [0, 2, 4], [0, 2, 5]]
    assert row_paths(TREE) == [(), (7,), (9,), (7, 8), (9, 3), (7, 8, 4), (7, 8, 5)]
    assert children(TREE) == [[0, 1], [2], [3], [4, 5], [], [], []]


def test_no_draft_is_a_single_row() -> None:
    assert depths(NO_DRAFT) == []
    assert ancestors(NO_DRAFT) == []
    assert row_paths(NO_DRAFT) == [()]
    assert children(NO_DRAFT) == [[]]
    assert prune(NO_DRAFT, []) is NO_DRAFT


@given(forests())
def test_all_views_of_a_tree_agree_with_walking_up_from_each_node(tree: DraftTree) -> None:
    walks = [lineage(tree, node) for node in range(len(tree))]
    assert ancestors(tree) == walks
    assert depths(tree) == [len(walk) for walk in walks]
    assert row_paths(tree) == [(), *(tuple(tree.tokens[n] for n in walk) for walk in walks)]
    for row, below in enumerate(children(tree)):
        assert below == [n for n in range(len(tree)) if tree.parents[n] == row - 1]


@given(forests(), st.data())
def test_pruning_keeps_the_nodes_whose_whole_lineage_is_kept(
    tree: DraftTree, data: st.DataObject
) -> None:
    keep = [data.draw(st.booleans()) for _ in range(len(tree))]
    left = [n for n in range(len(tree)) if all(keep[above] for above in lineage(tree, n))]
    pruned = prune(tree, keep)
    assert pruned.tokens == tuple(tree.tokens[node] for node in left)
    assert row_paths(pruned)[1:] == [row_paths(tree)[node + 1] for node in left]
    assert pruned.q is not None and tree.q is not None
    assert torch.equal(pruned.q, tree.q[left])


def test_pruning_nothing_gives_the_same_tree() -> None:
    assert prune(TREE, [True] * 6) is TREE


def test_a_chain_is_a_tree_and_knows_it() -> None:
    assert DraftTree.chain([4, 5, 6]).parents == (-1, 0, 1)
    assert DraftTree.chain([4, 5, 6]).is_chain
    assert NO_DRAFT.is_chain
    assert not TREE.is_chain
    assert depths(DraftTree.chain([4, 5, 6])) == [1, 2, 3]


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ((1, 2), (-1,), "2 tokens but 1 parents"),
        ((1, 2), (-1, 1), "node 1 has parent 1"),
        ((1, 2), (1, -1), "node 0 has parent 1"),
        ((1,), (-2,), "node 0 has parent -2"),
    ],
)
def test_a_tree_whose_nodes_come_before_their_parents_is_refused(
    tokens: tuple[int, ...], parents: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        DraftTree(tokens, parents)


def test_a_tree_has_one_row_of_q_for_each_node() -> None:
    with pytest.raises(ValueError, match="q has 1 rows for 2 nodes"):
        DraftTree.chain([1, 2], torch.ones(1, 4))


def test_pruning_keeps_the_chances_of_what_stays() -> None:
    tree = DraftTree((1, 2, 3, 4), (-1, 0, -1, 2), None, (0.9, 0.5, 0.3, 0.1))
    assert prune(tree, [True, False, True, True]).chances == (0.9, 0.3, 0.1)


def test_the_likeliest_path_is_a_chain_of_likeliest_children() -> None:
    tree = DraftTree((1, 2, 3, 4, 5), (-1, -1, 1, 1, 0), None, (0.3, 0.6, 0.1, 0.4, 0.25))
    path = likeliest_path(tree)
    assert path.is_chain
    assert path.tokens == (2, 4)
    assert path.chances == (0.6, 0.4)


def test_without_chances_the_path_leads_through_first_children() -> None:
    assert likeliest_path(DraftTree((1, 2, 3, 4), (-1, -1, 0, 1))).tokens == (1, 3)
