"""What drafts are expected to bring before they are made."""

from __future__ import annotations

import itertools

import pytest

from outrider.engine.gains import Gains, Level


def levels(*tokens: float) -> list[Level]:
    return [Level(each) for each in tokens]


def tokens(gains: Gains, depth: int) -> list[float]:
    return [level.tokens for level in gains.first(depth)]


def test_nothing_is_known_before_a_draft() -> None:
    assert not Gains().is_known
    assert not Gains(Gains()).is_known


def test_drafts_alike_are_what_is_expected_next() -> None:
    gains = Gains(Gains())
    for _ in range(60):
        gains.learn([Level(0.8, 2), Level(0.5, 3), Level(0.1, 1)])
    found = gains.first(3)
    assert [level.tokens for level in found] == pytest.approx([0.8, 0.5, 0.1], abs=0.05)
    assert [level.nodes for level in found] == pytest.approx([2, 3, 1], abs=0.1)


def test_what_is_expected_never_rises_with_depth() -> None:
    gains = Gains(Gains())
    gains.learn(levels(0.3))
    gains.learn(levels(0.9, 0.9, 0.9))
    found = tokens(gains, 8)
    assert found == sorted(found, reverse=True)


def test_a_new_request_expects_what_others_have_seen() -> None:
    pool = Gains()
    for _ in range(50):
        Gains(pool).learn(levels(0.6, 0.4))
    fresh = Gains(pool)
    assert fresh.is_known
    assert tokens(fresh, 2) == pytest.approx([0.6, 0.4], abs=0.02)


def test_a_request_soon_goes_by_its_own_drafts() -> None:
    pool = Gains()
    for _ in range(50):
        Gains(pool).learn(levels(0.9))
    own = Gains(pool)
    for _ in range(20):
        own.learn(levels(0.1))
    assert tokens(own, 1)[0] < 0.3


def test_a_level_not_seen_yet_keeps_what_the_last_has_kept() -> None:
    gains = Gains.from_list([[0.9, 1], [0.72, 1]])
    assert tokens(gains, 4) == pytest.approx([0.9, 0.72, 0.576, 0.4608])
    single = Gains()
    single.learn(levels(0.5))
    found = tokens(single, 5)
    assert all(later < earlier for earlier, later in itertools.pairwise(found))


@pytest.mark.parametrize(("first", "least", "most"), [(0.0, 0.35, 0.55), (1.0, 0.6, 0.8)])
def test_the_first_draft_of_all_is_no_verdict(first: float, least: float, most: float) -> None:
    pool = Gains()
    own = Gains(pool)
    own.learn(levels(first))
    for gains in (pool, own, Gains(pool)):
        assert least <= tokens(gains, 1)[0] <= most


def test_what_is_kept_is_what_comes_back() -> None:
    gains = Gains()
    gains.learn([Level(0.7, 2), Level(0.2, 1)])
    assert Gains.from_list(gains.to_list()).first(4) == gains.first(4)


@pytest.mark.parametrize("values", [[[1.5, 1]], [[-0.1, 1]], [[float("nan"), 1]], [[0.5, -1]]])
def test_averages_that_cannot_be_are_refused(values: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="a level brings"):
        Gains.from_list(values)
