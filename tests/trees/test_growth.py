"""Trees that grow level by level: by chance where drafts are certain, by shape where drawn."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider.trees.growth import Growing, Growth, ShapedGrowth
from outrider.trees.layout import children, row_paths
from outrider.trees.shape import TreeShape, sequoia_shape
from outrider.types import NO_DRAFT, ROOT


def grow(growth: Growing, levels: int, seed: int = 0) -> list[list[int]]:
    """Give every frontier node random children; returns the frontiers."""
    random = Random(seed)
    frontiers = []
    for _ in range(levels):
        if not growth.frontier:
            break
        frontiers.append(list(growth.frontier))
        tokens, chances = [], []
        for count in growth.counts:
            tokens.append(random.sample(range(100), count))
            weights = [random.random() for _ in range(count + 1)]
            likely = [weight / sum(weights) for weight in weights[:count]]
            chances.append(sorted(likely, reverse=True))
        q = torch.rand(len(tokens), 100) if isinstance(growth, ShapedGrowth) else None
        growth.add(tokens, chances, q)
    return frontiers


def test_a_small_tree_grows_where_it_is_likeliest() -> None:
    growth = Growth(2)
    assert (growth.frontier, growth.counts) == ([ROOT], [2])
    growth.add([[5, 6]], [[0.5, 0.4]])
    assert growth.frontier == [0, 1]
    growth.add([[7, 8], [7, 9]], [[0.9, 0.1], [0.8, 0.2]])
    assert growth.frontier == [2, 4]  # 0.45 and 0.32
    assert growth.path(4) == [1, 4]
    assert [growth.depth(node) for node in (ROOT, 1, 4)] == [0, 1, 2]
    tree = growth.tree(4)
    assert row_paths(tree)[1:] == [(5,), (6,), (5, 7), (6, 7)]
    assert tree.chances == pytest.approx((0.5, 0.4, 0.45, 0.32))
    assert tree.q is None


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 9), st.integers(0, 40))
def test_a_draft_holds_the_likeliest_nodes_of_all(
    width: int, levels: int, seed: int, budget: int
) -> None:
    growth = Growth(width)
    grow(growth, levels, seed)
    tree = growth.tree(budget)
    assert len(tree) == min(budget, len(growth.tokens))
    everything = sorted(growth.chances, reverse=True)
    assert sorted(tree.chances or (), reverse=True) == everything[:budget]
    for row, below in enumerate(children(tree)):
        assert len(below) <= width
        reached = 1.0 if row == 0 else (tree.chances or ())[row - 1]
        assert all((tree.chances or ())[node] <= reached for node in below)


def grow_alike(growth: Growth, chances: Sequence[float], levels: int) -> int:
    """Give every frontier node children of the same chances; returns how many got any."""
    expanded = 0
    for _ in range(levels):
        count = len(growth.frontier)
        expanded += count
        tokens = [list(range(len(chances)))] * count
        growth.add(tokens, [list(chances)] * count)
    return expanded


@pytest.mark.parametrize("chances", [(0.6, 0.2, 0.1), (0.9, 0.05, 0.01), (0.3, 0.28, 0.26)])
@pytest.mark.parametrize("budget", [1, 4, 7, 12])
def test_a_draft_of_known_size_is_the_same_with_less_expanded(
    budget: int, chances: tuple[float, ...]
) -> None:
    everywhere, foreseeing = Growth(3), Growth(3, budget, depth=6)
    most = grow_alike(everywhere, chances, 6)
    assert grow_alike(foreseeing, chances, 6) < most
    found, expected = foreseeing.tree(budget), everywhere.tree(budget)
    assert (found.tokens, found.parents) == (expected.tokens, expected.parents)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 9))
def test_the_likeliest_nodes_of_the_newest_level_are_expanded(
    width: int, levels: int, seed: int
) -> None:
    growth = Growth(width)
    for depth, frontier in enumerate(grow(growth, levels, seed)):
        level = [n for n in range(len(growth.tokens)) if growth.depth(n) == depth]
        if depth:
            ranked = sorted((growth.chances[node] for node in level), reverse=True)
            chosen = sorted((growth.chances[node] for node in frontier), reverse=True)
            assert chosen == ranked[:width]
            assert set(frontier) <= set(level)


def test_equal_chances_keep_parents_and_earlier_siblings() -> None:
    growth = Growth(2)
    growth.add([[1, 2]], [[1.0, 1.0]])
    growth.add([[3, 4], [5, 6]], [[1.0, 1.0 + 1e-6], [1.0, 1.0]])
    for budget in range(7):
        tree = growth.tree(budget)
        assert tree.tokens == (1, 2, 3, 4, 5, 6)[:budget]
    assert growth.frontier == [2, 3]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 9))
def test_what_is_read_for_a_level_is_its_frontier_and_all_above_it(
    width: int, levels: int, seed: int
) -> None:
    growth = Growth(width)
    grow(growth, levels, seed)
    tree, rows = growth.lineage()
    paths = row_paths(tree)
    for node, row in zip(growth.frontier, rows, strict=True):
        assert paths[row] == tuple(growth.tokens[above] for above in growth.path(node))
    needed = {node for leaf in growth.frontier for node in growth.path(leaf)}
    assert len(tree) == len(needed)


def test_before_anything_has_grown_the_root_alone_is_read() -> None:
    tree, rows = Growth(3).lineage()
    assert (len(tree), rows) == (0, [0])
    assert Growth(3).tree(5) is NO_DRAFT


@given(st.integers(0, 12), st.integers(1, 4), st.integers(0, 5))
def test_a_sampled_draft_has_its_shape_whatever_is_drawn(nodes: int, depth: int, seed: int) -> None:
    """DIST-4: the number of children, and which nodes have any, depend on no token."""
    shape = sequoia_shape((0.5, 0.2, 0.1), nodes, depth)
    growth = ShapedGrowth(shape)
    frontiers = grow(growth, depth + 1, seed)
    tree = growth.tree(len(shape))
    assert tree.parents == shape.parents
    assert len(frontiers) == shape.depth
    assert tree.chances is None


def test_each_node_of_a_sampled_draft_carries_the_law_of_its_parent() -> None:
    growth = ShapedGrowth(TreeShape.of_paths([(0,), (1,), (2,), (0, 0), (2, 0), (2, 1)]))
    assert growth.counts == [3]
    first, second = torch.rand(1, 9), torch.rand(2, 9)
    growth.add([[4, 2, 7]], [[0.5, 0.2, 0.1]], first)
    assert (growth.frontier, growth.counts) == ([0, 2], [1, 2])
    growth.add([[3, 8], [3, 6]], [[0.5, 0.2]] * 2, second)
    tree = growth.tree(6)
    assert row_paths(tree)[1:] == [(4,), (2,), (7,), (4, 3), (7, 3), (7, 6)]
    assert tree.q is not None
    assert torch.equal(tree.q, torch.cat([first.expand(3, -1), second[[0, 1, 1]]]))
    assert growth.frontier == []


def test_where_fewer_tokens_are_possible_the_rest_of_the_shape_is_missing() -> None:
    growth = ShapedGrowth(TreeShape.of_paths([(0,), (1,), (0, 0), (1, 0)]))
    growth.add([[4]], [[1.0]], torch.rand(1, 9))
    assert growth.frontier == [0]
    growth.add([[5, 6]], [[0.5, 0.2]], torch.rand(1, 9))
    assert row_paths(growth.tree(4))[1:] == [(4,), (4, 5)]


def test_each_kind_refuses_the_drafts_of_the_other() -> None:
    one: Sequence[Sequence[int]] = [[1]]
    with pytest.raises(ValueError, match="cannot grow by the tokens that were drawn"):
        Growth(1).add(one, [[0.5]], torch.rand(1, 3))
    shape = TreeShape.of_paths([(0,)])
    with pytest.raises(ValueError, match="needs the laws"):
        ShapedGrowth(shape).add(one, [[0.5]])
    with pytest.raises(ValueError, match="in the order they were drawn"):
        ShapedGrowth(TreeShape.of_paths([(1,)]))


def test_a_sampled_draft_is_never_cut_to_a_budget() -> None:
    growth = ShapedGrowth(TreeShape.of_paths([(0,), (1,)]))
    growth.add([[1, 2]], [[0.5, 0.2]], torch.rand(1, 3))
    with pytest.raises(ValueError, match="2 sampled nodes where 1 were asked for"):
        growth.tree(1)


def test_an_empty_shape_is_no_draft() -> None:
    growth = ShapedGrowth(TreeShape())
    assert growth.frontier == []
    assert growth.tree(0) is NO_DRAFT
