"""What passes and proposals take, told apart by what causes it."""

from __future__ import annotations

import json

import pytest

from outrider.engine.costs import DraftCosts, PassCosts

PASS = 0.03


def test_nothing_is_known_until_a_pass_is_timed() -> None:
    costs = PassCosts()
    assert not costs.is_known()
    assert costs.seconds(1) == pytest.approx(1)
    costs.observe(1, 0, 0.0)  # a clock that did not move
    assert not costs.is_known()
    costs.observe(1, 10, PASS)
    assert costs.is_known()
    assert not costs.is_known(sequences=3)
    assert not costs.is_measured
    assert costs.seconds(1, 10) == pytest.approx(PASS)


def test_each_number_of_sequences_has_its_own_costs() -> None:
    costs = PassCosts()
    for _ in range(20):
        costs.observe(1, 0, PASS)
        costs.observe(8, 0, 2 * PASS)
        costs.observe(8, 0, 3 * PASS, sequences=8)
    assert costs.seconds(8) == pytest.approx(2 * PASS, rel=0.1)
    assert costs.seconds(8, sequences=8) == pytest.approx(3 * PASS, rel=0.1)
    assert costs.seconds(8, sequences=5) == costs.seconds(8, sequences=8)
    # Nothing is known of four sequences: the next smaller number stands in.
    assert costs.seconds(8, sequences=4) == pytest.approx(2 * PASS, rel=0.1)


def points() -> list[tuple[int, float, float, int]]:
    """Rows add a tenth of a pass, 10,000 attended tokens another."""
    return [
        (
            sequences * rows,
            sequences * rows * context,
            PASS * (1 + 0.1 * (sequences * rows - 1) + 1e-5 * sequences * rows * context),
            sequences,
        )
        for sequences in (1, 4)
        for rows in (1, 2, 4, 8)
        for context in (64, 1024)
    ]


def test_measured_costs_give_the_measurements_back() -> None:
    costs = PassCosts.measured(points())
    assert costs.is_measured
    for rows, attended, seconds, sequences in points():
        assert costs.seconds(rows, attended, sequences) == pytest.approx(seconds, rel=0.02)
    assert not PassCosts.measured([]).is_measured


def test_pass_costs_survive_being_written_down() -> None:
    costs = PassCosts.measured(points())
    copy = PassCosts.from_dict(json.loads(json.dumps(costs.to_dict())))
    assert copy.is_measured
    for rows, attended, _, sequences in points():
        expected = costs.seconds(rows, attended, sequences)
        assert copy.seconds(rows, attended, sequences) == pytest.approx(expected)
    assert not PassCosts.from_dict(PassCosts().to_dict()).is_measured


def test_before_its_first_proposal_a_step_is_taken_for_a_tenth_of_a_pass() -> None:
    costs = DraftCosts()
    assert not costs.is_known
    assert costs.seconds(5, 0, PASS) == pytest.approx(0.5 * PASS)


@pytest.mark.parametrize("step", [0.01, 0.1, 0.5, 3.0])
def test_the_first_proposal_tells_what_a_step_costs(step: float) -> None:
    """ADAPT-3, ADAPT-4: a drafter dearer than the target is known for it at once."""
    costs = DraftCosts()
    costs.observe(1, 2, step * PASS, PASS)
    assert costs.seconds(4, 0, PASS) == pytest.approx(4 * step * PASS, rel=0.3, abs=0.1 * PASS)


def test_steps_unread_tokens_and_the_fixed_part_are_told_apart() -> None:
    costs = DraftCosts()

    def taken(steps: int, unread: int) -> float:
        return PASS * (0.05 + 0.15 * steps + 0.003 * unread)

    for steps, unread in [(1, 300), (4, 0), (2, 0), (6, 60), (3, 0), (1, 0), (5, 200)] * 8:
        costs.observe(steps, unread, taken(steps, unread), PASS)
    for steps, unread in [(1, 0), (8, 0), (4, 500)]:
        assert costs.seconds(steps, unread, PASS) == pytest.approx(taken(steps, unread), rel=0.15)


def test_one_slow_proposal_is_soon_forgotten() -> None:
    costs = DraftCosts()
    for _ in range(20):
        costs.observe(4, 0, 0.4 * PASS, PASS)
    costs.observe(4, 0, 100 * PASS, PASS)
    assert costs.seconds(4, 0, PASS) < 0.6 * PASS
    for _ in range(10):
        costs.observe(4, 0, 0.4 * PASS, PASS)
    assert costs.seconds(4, 0, PASS) == pytest.approx(0.4 * PASS, rel=0.1)


def test_proposals_for_many_requests_and_for_one_have_costs_of_their_own() -> None:
    """Load that comes and goes must not make a drafter look dear to one, or cheap to many."""
    costs = DraftCosts()
    for _ in range(20):
        costs.observe(4, 0, 0.4 * PASS, PASS)
    for _ in range(20):
        costs.observe(4, 0, 20 * PASS, 8 * PASS, 64)
    assert costs.seconds(4, 0, PASS) == pytest.approx(0.4 * PASS, rel=0.05)
    assert costs.seconds(4, 0, 8 * PASS, 64) == pytest.approx(20 * PASS, rel=0.2)


def test_of_numbers_of_requests_that_were_not_timed_proposals_cost_as_much_next_to_a_pass() -> None:
    costs = DraftCosts()
    for _ in range(20):
        costs.observe(4, 0, 0.4 * PASS, PASS)
    assert costs.seconds(4, 0, 3 * PASS, 16) == pytest.approx(1.2 * PASS, rel=0.05)
    assert costs.knows_of(8) and not costs.knows_of(9)


def test_draft_costs_survive_being_written_down() -> None:
    costs = DraftCosts()
    assert not DraftCosts.from_dict(json.loads(json.dumps(costs.to_dict()))).is_known
    costs.observe(3, 50, PASS, PASS)
    costs.observe(3, 90, 4 * PASS, 2 * PASS, 5)
    copy = DraftCosts.from_dict(json.loads(json.dumps(costs.to_dict())))
    assert copy.is_known
    for requests in (1, 5):
        assert copy.seconds(7, 9, PASS, requests) == costs.seconds(7, 9, PASS, requests)
    with pytest.raises((ValueError, KeyError, TypeError)):
        DraftCosts.from_dict({"fixed": 1})


def test_a_glance_counts_half_and_passes_soon_correct_it() -> None:
    """A machine that was busy while it was glanced at must not keep drafts from being tried."""
    busy = PassCosts.glanced([(1, 0, 0.03, 1), (4, 0, 0.09, 1), (8, 0, 0.24, 1)])
    sure = PassCosts.measured([(1, 0, 0.03, 1), (4, 0, 0.09, 1), (8, 0, 0.24, 1)])
    assert busy.seconds(8) < 0.6 * sure.seconds(8)
    for _ in range(6):
        busy.observe(1, 0, 0.03, 1)
        busy.observe(8, 0, 0.04, 1)
    assert busy.seconds(8) < 0.05


def test_a_glance_at_a_quiet_machine_tells_dear_rows_from_cheap_ones() -> None:
    cheap = PassCosts.glanced([(1, 0, 0.03, 1), (4, 0, 0.0303, 1), (8, 0, 0.031, 1)])
    dear = PassCosts.glanced([(1, 0, 0.03, 1), (4, 0, 0.06, 1), (8, 0, 0.12, 1)])
    assert dear.seconds(8) / dear.seconds(1) > 1.5 * cheap.seconds(8) / cheap.seconds(1)
