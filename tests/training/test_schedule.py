"""The learning rate depends on the step and nothing else."""

from __future__ import annotations

import pytest

from outrider.training.schedule import Schedule


def test_the_rate_rises_in_a_line_to_its_peak() -> None:
    schedule = Schedule(peak=2.0, total_steps=100, warm_up_steps=4)
    assert [schedule.rate(step) for step in range(1, 5)] == [0.5, 1.0, 1.5, 2.0]


def test_a_cosine_falls_from_the_peak_to_the_floor_and_never_rises() -> None:
    schedule = Schedule(peak=2.0, total_steps=104, warm_up_steps=4, floor=0.1)
    rates = [schedule.rate(step) for step in range(4, 105)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 2.0
    assert rates[50] == pytest.approx(2.0 * (0.1 + 0.9 / 2))
    assert rates[-1] == pytest.approx(0.2)
    assert schedule.rate(1000) == rates[-1]


def test_a_constant_rate_stays_at_its_peak() -> None:
    schedule = Schedule(peak=2.0, total_steps=10, warm_up_steps=2, shape="constant", floor=0.1)
    assert [schedule.rate(step) for step in range(1, 11)] == [1.0] + [2.0] * 9


@pytest.mark.parametrize("shape", ["cosine", "constant"])
@pytest.mark.parametrize("warm_up", [0, 1, 3])
@pytest.mark.parametrize("total", [1, 2, 3])
def test_the_shortest_runs_have_rates_above_nothing(shape: str, warm_up: int, total: int) -> None:
    schedule = Schedule(1.0, total, min(warm_up, total), shape, floor=0.05)  # type: ignore[arg-type]
    for step in range(1, total + 1):
        assert 0 < schedule.rate(step) <= 1.0
