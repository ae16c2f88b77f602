"""What drafts are expected to bring before they are made."""

from __future__ import annotations

import itertools

import pytest

from outrider.engine.gains import Gains


def test_nothing_is_known_before_a_draft() -> None:
    assert not Gains().is_known
    assert not Gains(Gains()).is_known


def test_drafts_alike_are_what_is_expected_next() -> None:
    gains = Gains(Gains())
    for _ in range(60):
        gains.learn([0.8, 0.5, 0.1])
    assert gains.first(3) == pytest.approx([0.8, 0.5, 0.1], abs=0.05)


def test_what_is_expected_never_rises_along_the_nodes() -> None:
    gains = Gains(Gains())
    gains.learn([0.3])
    gains.learn([0.9, 0.9, 0.9])
    found = gains.first(8)
    assert found == sorted(found, reverse=True)


def test_a_new_request_expects_what_others_have_seen() -> None:
    pool = Gains()
    for _ in range(50):
        Gains(pool).learn([0.6, 0.4])
    fresh = Gains(pool)
    assert fresh.is_known
    assert fresh.first(2) == pytest.approx([0.6, 0.4], abs=0.02)


def test_a_request_soon_goes_by_its_own_drafts() -> None:
    pool = Gains()
    for _ in range(50):
        Gains(pool).learn([0.9])
    own = Gains(pool)
    for _ in range(20):
        own.learn([0.1])
    assert own.first(1)[0] < 0.3


def test_nodes_beyond_those_seen_are_worth_less_and_less() -> None:
    gains = Gains()
    gains.learn([0.5])
    found = gains.first(5)
    assert all(later < earlier for earlier, later in itertools.pairwise(found))


def test_what_is_kept_is_what_comes_back() -> None:
    gains = Gains()
    gains.learn([0.7, 0.2])
    assert Gains.from_list(gains.to_list()).first(4) == gains.first(4)


@pytest.mark.parametrize("means", [[1.5], [-0.1], [float("nan")]])
def test_averages_that_are_no_chances_are_refused(means: list[float]) -> None:
    with pytest.raises(ValueError, match="averages of chances"):
        Gains.from_list(means)
