"""The estimate of how likely a copied token is right."""

from __future__ import annotations

from outrider.drafters.survival import Survival


def test_before_anything_is_seen_longer_agreements_are_trusted_more() -> None:
    survival = Survival()
    rates = [survival.rate(matched) for matched in (0, 1, 2, 4, 8, 16, 32, 64)]
    assert rates == sorted(set(rates))
    assert survival.rate(64) == survival.rate(100_000) < 1


def test_a_rate_moves_to_what_is_seen_and_leaves_the_others_alone() -> None:
    survival = Survival()
    others = [survival.rate(matched) for matched in (0, 1, 2, 8)]
    for _ in range(100):
        survival.learn(5, right=False)
    assert survival.rate(4) == survival.rate(7) < 0.1
    assert [survival.rate(matched) for matched in (0, 1, 2, 8)] == others


def test_a_rate_recovers_however_long_it_was_wrong() -> None:
    """ADAPT-2"""
    survival = Survival()
    for _ in range(10_000):
        survival.learn(5, right=False)
    for _ in range(100):
        survival.learn(5, right=True)
    assert survival.rate(5) > 0.9


def test_requests_do_not_share_an_estimate() -> None:
    """DRAFT-5"""
    one, other = Survival(), Survival()
    one.learn(3, right=False)
    assert one.rate(3) < other.rate(3)
