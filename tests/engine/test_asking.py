"""Drafters are asked as long as that pays, and else so seldom that it is hardly felt."""

from __future__ import annotations

import pytest

from outrider.engine.asking import Asking
from support.machines import PLAIN_S, Machine, drafter, steep

SLOW_S = 0.3 * PLAIN_S
"""What a lookup takes that a pass does not hide."""


def learnt(saved_s: float, upkeep_s: float, rounds: int = 40) -> tuple[Asking, int]:
    """Return what such rounds teach, and in how many of them drafters were asked."""
    asking, asked = Asking(), 0
    for _ in range(rounds):
        is_due = asking.is_due
        asked += is_due
        asking.learn(saved_s if is_due else None, upkeep_s if is_due else 0.0, 1.0)
    return asking, asked


def test_asking_that_is_hardly_felt_is_done_every_round() -> None:
    assert learnt(0.0, 0.004)[1] == 40


def test_asking_that_saves_more_than_it_takes_is_done_every_round() -> None:
    assert learnt(0.3, 0.2)[1] == 40


def test_asking_that_saves_nothing_is_done_the_less_the_longer_it_takes() -> None:
    often, seldom = learnt(0.0, 0.02, 400)[1], learnt(0.0, 0.2, 400)[1]
    assert 400 / 64 < seldom < often < 400 / 2


def test_one_round_that_saves_something_is_enough_to_ask_again() -> None:
    asking, _ = learnt(0.0, 0.1)
    while not asking.is_due:
        asking.learn(None, 0.0, 1.0)
    asking.learn(0.2, 0.1, 1.0)
    assert asking.is_due


@pytest.mark.parametrize("rounds", [0, 1, 40])
def test_one_interrupted_round_does_not_end_asking(rounds: int) -> None:
    asking, _ = learnt(0.0, 0.001, rounds)
    asking.learn(0.0, 5.0, 1.0)
    for _ in range(20):
        assert asking.is_due
        asking.learn(0.0, 0.001, 1.0)


@pytest.mark.parametrize("requests", [1, 8])
def test_a_slow_lookup_that_is_always_wrong_costs_next_to_nothing(requests: int) -> None:
    """Of many requests it may take as long as a pass: no fault of its, but no gain either."""
    machine = Machine.of([drafter(0.0, fixed=SLOW_S)], max_batch=requests)
    plain = Machine.of([], max_batch=requests).run(1500, requests)
    assert machine.run(1500, requests) < 1.02 * plain


def test_a_slow_lookup_comes_back_when_its_drafts_hold() -> None:
    half = 400
    build = drafter(lambda place: 0.95 if place // half % 2 else 0.0, fixed=SLOW_S)
    machine = Machine.of([build], steep)
    assert machine.run(4 * half) < 0.75 * Machine.of([], steep).run(4 * half)
