"""Shapes settled before drafting: the best there are, and never dependent on a draft."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.trees.sequoia import Plan
from outrider.trees.shape import (
    RANK_CHANCES,
    TreeShape,
    best_sequoia_shape,
    depth_for,
    greedy_shape,
    sequoia_shape,
    usual_shape,
)

CHANCES = st.lists(st.floats(0, 0.4), min_size=1, max_size=3)


def accepted(shape: TreeShape, accuracies: Sequence[Sequence[float]]) -> float:
    """Expected number of accepted nodes, by adding up the chance of every path."""
    found = 0.0
    for node in range(len(shape)):
        chance = 1.0
        depths = []
        while node >= 0:
            depths.append(shape.ranks[node])
            node = shape.parents[node]
        for depth, rank in enumerate(reversed(depths)):
            chance *= accuracies[depth][rank]
        found += chance
    return found


@cache
def all_shapes(nodes: int, depth: int, ranks: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Every set of paths with at most so many nodes, levels and children without gaps."""

    def forests(left: int, depth: int, rank: int) -> Iterator[tuple[int, list[tuple[int, ...]]]]:
        yield 0, []
        if depth == 0 or rank == ranks or left == 0:
            return
        for inner, below in forests(left - 1, depth - 1, 0):
            for more, later in forests(left - 1 - inner, depth, rank + 1):
                mine = [(rank,), *((rank, *path) for path in below)]
                yield 1 + inner + more, [*mine, *later]

    return tuple(tuple(paths) for _, paths in forests(nodes, depth, 0))


def test_a_shape_of_paths_has_a_node_for_each_path_level_by_level() -> None:
    shape = TreeShape.of_paths([(0,), (1,), (0, 0), (0, 2), (1, 0), (0, 0, 1)])
    assert shape.parents == (-1, -1, 0, 0, 1, 2)
    assert shape.ranks == (0, 1, 0, 2, 0, 1)
    assert shape.levels() == [[0, 1], [2, 3, 4], [5]]
    assert shape.children() == [[0, 1], [2, 3], [4], [5], [], [], []]
    assert (len(shape), shape.depth) == (6, 3)
    assert not shape.has_all_ranks
    assert TreeShape.of_paths([(0,), (1,), (0, 0)]).has_all_ranks


def test_the_empty_shape_has_no_levels() -> None:
    assert (len(TreeShape()), TreeShape().depth, TreeShape().children()) == (0, 0, [[]])
    assert TreeShape().has_all_ranks


def test_a_path_without_its_parent_is_refused() -> None:
    with pytest.raises(ValueError, match=r"path \[1, 0\] has no parent"):
        TreeShape.of_paths([(0,), (1, 0)])


@pytest.mark.parametrize(
    ("parents", "ranks", "message"),
    [
        ((-1,), (), "1 parents but 0 ranks"),
        ((0,), (0,), "node 0 has parent 0"),
        ((-1, -1), (1, 0), "node 1 has rank 0"),
        ((-1, -1), (1, 1), "node 1 has rank 1"),
    ],
)
def test_a_shape_that_is_no_tree_in_rank_order_is_refused(
    parents: tuple[int, ...], ranks: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        TreeShape(parents, ranks)


@pytest.mark.parametrize(
    ("rank_chances", "tokens"),
    [
        ((0.6, 0.2), (1, 1.6, 1.96, 2.176, 2.376, 2.5056, 2.6256, 2.7456)),
        ((0.6, 0.3, 0.1), (1, 1.6, 1.96, 2.26, 2.476, 2.656, 2.836, 2.9656)),
    ],
)
def test_the_dynamic_program_yields_the_published_tokens(
    rank_chances: tuple[float, ...], tokens: tuple[float, ...]
) -> None:
    plan = Plan(rank_chances, 7, 7)
    assert [plan.tokens(nodes, 7) for nodes in range(8)] == pytest.approx(list(tokens))


@given(CHANCES, st.integers(0, 5), st.integers(0, 3))
def test_no_shape_is_accepted_further_than_the_dynamic_programs(
    rank_chances: list[float], nodes: int, depth: int
) -> None:
    shape = sequoia_shape(rank_chances, nodes, depth)
    accuracies = [rank_chances] * depth
    best = max(
        accepted(TreeShape.of_paths(paths), accuracies)
        for paths in all_shapes(nodes, depth, len(rank_chances))
    )
    assert len(shape) <= nodes and shape.depth <= depth and shape.has_all_ranks
    assert accepted(shape, accuracies) == pytest.approx(best)
    plan = Plan(rank_chances, nodes, depth)
    assert plan.tokens(nodes, depth) == pytest.approx(1 + best)


@given(st.lists(CHANCES, min_size=1, max_size=3), st.integers(0, 6))
def test_no_shape_is_accepted_further_than_the_greedy_one(
    accuracies: list[list[float]], nodes: int
) -> None:
    """Each node taken is the best that is left, in any order of the ranks."""
    shape = greedy_shape(accuracies, nodes)
    ranked = [sorted(level, reverse=True) for level in accuracies]
    widest = max(map(len, ranked))
    padded = [level + [0.0] * (widest - len(level)) for level in ranked]
    best = max(
        accepted(TreeShape.of_paths(paths), padded)
        for paths in all_shapes(nodes, len(accuracies), widest)
    )
    assert len(shape) <= nodes
    assert accepted(shape, accuracies) == pytest.approx(best)


def test_nodes_that_are_never_accepted_are_left_out() -> None:
    assert len(greedy_shape([[0.5, 0.0], [0.0]], 10)) == 1
    assert len(sequoia_shape([0.5, 0.0], 4, 2)) == 2
    assert len(sequoia_shape([0.0], 4, 4)) == 0


def test_the_best_shape_is_the_one_with_most_tokens_a_second() -> None:
    def seconds(rows: int) -> float:
        return 1 + 0.02 * math.pow(rows - 1, 1.5)

    shape = best_sequoia_shape([0.6, 0.2], seconds, 0.05, 7, 3)
    rates = {
        paths: (1 + accepted(TreeShape.of_paths(paths), [[0.6, 0.2]] * 3))
        / (seconds(1 + len(paths)) + 0.05 * max(map(len, paths), default=0))
        for paths in all_shapes(7, 3, 2)
    }
    found = (1 + accepted(shape, [[0.6, 0.2]] * 3)) / (seconds(1 + len(shape)) + 0.05 * shape.depth)
    assert found == pytest.approx(max(rates.values()))
    assert 0 < len(shape) < 7


def test_the_best_shape_is_empty_where_no_draft_pays() -> None:
    assert len(best_sequoia_shape([0.1], lambda rows: float(rows), 0.1, 8, 4)) == 0
    assert len(best_sequoia_shape([0.9], lambda rows: 1.0, 2.0, 8, 4)) == 0


def test_a_tree_is_one_level_deeper_for_each_doubling() -> None:
    assert [depth_for(nodes) for nodes in (0, 1, 2, 4, 8, 16, 32, 64)] == list(range(8))
    assert depth_for(63) == 6


def test_the_usual_shape_uses_every_node_and_keeps_to_its_limits() -> None:
    for nodes in (1, 2, 7, 16, 64):
        for width in (1, 2, 4):
            shape = usual_shape(nodes, width, depth_for(nodes))
            assert shape.depth <= depth_for(nodes)
            assert max(shape.ranks) < width
            assert shape.has_all_ranks
            assert len(shape) == (nodes if width > 1 else depth_for(nodes))
    assert usual_shape(5, 1, 5).parents == (-1, 0, 1, 2, 3)
    assert sum(RANK_CHANCES) <= 1
