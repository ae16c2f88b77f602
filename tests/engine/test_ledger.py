"""A drafter whose rounds lose time rests, whatever was forecast of it."""

from __future__ import annotations

from outrider.engine.ledger import Ledger

ALLOWED, REST = 4.0, 32


def after(rounds: int, saved: float, ledger: Ledger | None = None, first: int = 0) -> Ledger:
    found = ledger or Ledger(ALLOWED, REST)
    for place in range(rounds):
        found.note(first + place, saved)
    return found


def test_a_drafter_that_loses_time_rests_after_some_rounds() -> None:
    assert not after(10, -0.3).is_closed
    assert after(40, -0.3).is_closed


def test_a_drafter_that_saves_time_or_loses_none_to_speak_of_never_rests() -> None:
    assert not after(500, 0.05).is_closed
    assert not after(500, -0.01).is_closed


def test_bad_rounds_among_good_ones_are_no_reason_to_rest() -> None:
    ledger = Ledger(ALLOWED, REST)
    for place in range(300):
        ledger.note(place, -0.4 if place % 2 else 0.5)
    assert not ledger.is_closed


def test_what_was_saved_long_ago_pays_for_no_more_than_what_may_be_lost() -> None:
    assert after(30, -0.3, after(1000, 0.5)).is_closed


def test_one_good_trial_opens_the_book_again_and_one_lost_round_closes_it() -> None:
    ledger = after(40, -0.3)
    ledger.note(100, -0.3)
    assert ledger.is_closed
    ledger.note(200, 0.1)
    assert not ledger.is_closed
    ledger.note(201, -0.3)
    assert not ledger.is_closed
    ledger.note(202, -0.7)
    assert ledger.is_closed


def test_each_rest_is_longer_than_the_last() -> None:
    ledger = Ledger(ALLOWED, REST)
    rests, now = [], 0
    for _ in range(4):
        while not ledger.is_closed:
            ledger.note(now, -0.3)
            now += 1
        began = now
        while not ledger.may_try(now):
            now += 1
        rests.append(now - began)
        ledger.note(now, 1.0)
    assert rests == sorted(rests) and rests[0] < rests[-1]


def test_all_that_is_ever_lost_is_little_next_to_the_rounds_there_were() -> None:
    ledger, lost = Ledger(ALLOWED, REST), 0.0
    for now in range(2000):
        if not ledger.is_closed:
            ledger.note(now, -0.3)
            lost += 0.3
        elif ledger.may_try(now):
            ledger.note(now, 0.2)  # a lucky trial
    assert lost < 0.01 * 2000
