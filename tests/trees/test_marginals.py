"""Trees from guesses for each depth: the likeliest paths, and no others."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.trees.layout import row_paths
from outrider.trees.marginals import best_first
from outrider.types import NO_DRAFT

LEVEL = st.lists(st.floats(0.01, 1), min_size=1, max_size=3).map(
    lambda chances: sorted((c / sum(chances) for c in chances), reverse=True)
)
LEVELS = st.lists(LEVEL, max_size=4)


@given(LEVELS, st.integers(0, 12))
def test_the_tree_holds_the_likeliest_paths(levels: list[list[float]], budget: int) -> None:
    tokens = [
        [10 * depth + rank for rank in range(len(level))] for depth, level in enumerate(levels)
    ]
    chances = []
    for depth in range(len(levels)):
        for ranks in product(*(range(len(level)) for level in levels[: depth + 1])):
            chance = 1.0
            for level, rank in zip(levels, ranks, strict=False):
                chance *= level[rank]
            chances.append(chance)
    tree = best_first(tokens, levels, budget)
    assert len(tree) == min(budget, len(chances))
    assert tree.chances is None or sorted(tree.chances, reverse=True) == list(tree.chances)
    assert sum(tree.chances or ()) == pytest.approx(sum(sorted(chances, reverse=True)[:budget]))


@given(LEVELS, st.integers(1, 12))
def test_a_chance_is_the_product_along_its_path(levels: list[list[float]], budget: int) -> None:
    tokens = [
        [10 * depth + rank for rank in range(len(level))] for depth, level in enumerate(levels)
    ]
    tree = best_first(tokens, levels, budget)
    for path, chance in zip(row_paths(tree)[1:], tree.chances or (), strict=True):
        expected = 1.0
        for depth, token in enumerate(path):
            assert token // 10 == depth
            expected *= levels[depth][token % 10]
        assert chance == pytest.approx(expected)


def test_a_token_that_a_depth_names_twice_has_one_node() -> None:
    tree = best_first([[7, 7, 8], [1]], [[0.5, 0.3, 0.2], [0.1]], 10)
    assert row_paths(tree)[1:] == [(7,), (8,), (7, 1), (8, 1)]


def test_certain_children_come_after_their_parents() -> None:
    tree = best_first([[1], [2], [3]], [[1.0], [1.0 + 1e-7], [1.0]], 3)
    assert (tree.tokens, tree.parents, tree.chances) == ((1, 2, 3), (-1, 0, 1), (1.0, 1.0, 1.0))


def test_nothing_to_choose_from_is_no_draft() -> None:
    assert best_first([], [], 4) is NO_DRAFT
    assert best_first([[1]], [[0.5]], 0) is NO_DRAFT
    assert best_first([[], [1]], [[], [0.5]], 4) is NO_DRAFT
