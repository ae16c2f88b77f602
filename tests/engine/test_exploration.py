"""Trials of a drafter that does not pay: rarer and rarer, and never for much."""

from __future__ import annotations

from itertools import pairwise

from outrider.engine.exploration import SHARE, Exploration


def trials(cost: float, rounds: int) -> list[int]:
    """Return the rounds, of a second each, in which a drafter that never pays is tried."""
    exploration = Exploration()
    found = []
    for at in range(rounds):
        if exploration.is_due(at, cost, decode_s=float(at)):
            exploration.explore(at, cost)
            found.append(at)
    return found


def test_no_trial_is_made_before_there_is_time_for_it() -> None:
    enough = round(2.0 / SHARE)
    assert trials(cost=2.0, rounds=enough - 1) == []
    assert trials(cost=2.0, rounds=enough + 2)[0] == enough


def test_trials_take_no_more_than_their_share() -> None:
    for cost in (0.01, 0.3, 2.0):
        found = trials(cost, 5000)
        assert found
        for number, at in enumerate(found, 1):
            assert number * cost <= SHARE * at


def test_the_distance_grows_with_every_trial() -> None:
    found = trials(cost=0.001, rounds=20_000)
    distances = [later - before for before, later in pairwise(found)]
    assert distances[0] >= 16
    assert distances == sorted(distances)
    assert distances[-1] == 1024


def test_a_drafter_that_pays_is_tried_again_soon_after_it_stops() -> None:
    exploration = Exploration()
    for at in (0, 16, 48, 112):
        exploration.explore(at, 0.0)
    assert not exploration.is_due(200, 0.0, 1e9)
    exploration.exploit(201)
    assert exploration.is_due(217, 0.0, 1e9)
