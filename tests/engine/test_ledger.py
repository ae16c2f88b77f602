"""A drafter whose rounds lose time rests, whatever was forecast of it."""

from __future__ import annotations

from outrider.engine.ledger import Ledger


def after(rounds: int, saved_s: float, ledger: Ledger | None = None, first: int = 0) -> Ledger:
    found = ledger or Ledger()
    for place in range(rounds):
        found.note(first + place, saved_s, 1.0)
    return found


def test_a_drafter_that_loses_time_rests_after_some_rounds() -> None:
    assert not after(10, -0.3).is_closed
    assert after(40, -0.3).is_closed


def test_a_drafter_that_saves_time_or_loses_none_to_speak_of_never_rests() -> None:
    assert not after(500, 0.05).is_closed
    assert not after(500, -0.01).is_closed


def test_bad_rounds_among_good_ones_are_no_reason_to_rest() -> None:
    ledger = Ledger()
    for place in range(300):
        ledger.note(place, -0.4 if place % 2 else 0.5, 1.0)
    assert not ledger.is_closed


def test_one_good_trial_opens_the_book_again() -> None:
    ledger = after(40, -0.3)
    ledger.note(100, -0.3, 1.0)
    assert ledger.is_closed
    ledger.note(200, 0.4, 1.0)
    assert not ledger.is_closed
    assert not after(10, -0.3, ledger, 200).is_closed  # and the past is past


def test_each_rest_is_longer_than_the_last() -> None:
    ledger = Ledger()
    rests, now = [], 0
    for _ in range(4):
        while not ledger.is_closed:
            ledger.note(now, -0.3, 1.0)
            now += 1
        began = now
        while not ledger.may_try(now):
            now += 1
        rests.append(now - began)
        ledger.note(now, 1.0, 1.0)
    assert rests == sorted(rests) and rests[0] < rests[-1]
