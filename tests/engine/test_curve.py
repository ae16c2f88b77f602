"""The cost of a pass over its rows: guessed, measured, corrected, never led astray by one pass."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.engine.curve import KNOTS, RowCurve


def linear(rise: float, seconds: float = 0.03, base: int = 1) -> RowCurve:
    """Return a curve that was measured where a row adds `rise` of a plain pass."""
    curve = RowCurve(base)
    curve.measure(
        [(rows, 0.0, seconds * (1 + rise * (rows - base))) for rows in (1, 2, 4, 8, 16, 32)], 0.0
    )
    return curve


PASSES = st.lists(
    st.tuples(st.integers(1, 300), st.floats(0, 1e5), st.floats(1e-6, 10)), max_size=40
)


@given(PASSES, st.sampled_from([1, 2, 8, 256]))
def test_more_rows_and_more_context_never_cost_less_whatever_passes_took(
    passes: list[tuple[int, float, float]], base: int
) -> None:
    curve = RowCurve(base)
    for rows, attended, seconds in passes:
        curve.observe(rows, attended, seconds)
    for context in (0.0, 1e4):
        costs = [curve.seconds(rows, context) for rows in range(1, 400)]
        assert all(cost > 0 for cost in costs)
        assert all(low <= high * (1 + 1e-9) for low, high in pairwise(costs))
    assert curve.seconds(8, 1e4) >= curve.seconds(8, 0)


def test_until_a_pass_is_timed_rows_are_taken_to_cost_little() -> None:
    curve = RowCurve(1)
    assert not curve.is_known
    assert curve.seconds(1, 0) == pytest.approx(1)
    assert curve.seconds(8, 0) == pytest.approx(1.07)


@pytest.mark.parametrize("ratio", [1.0, 1.5, 2.5])
def test_a_wrong_guess_is_corrected_by_one_pass_of_that_width(ratio: float) -> None:
    curve = RowCurve(1)
    curve.observe(1, 0, 0.03)
    curve.observe(4, 0, 0.03 * ratio)
    assert curve.seconds(4, 0) / curve.seconds(1, 0) == pytest.approx(ratio, rel=0.15)
    curve.observe(4, 0, 0.03 * ratio)
    assert curve.seconds(4, 0) / curve.seconds(1, 0) == pytest.approx(ratio, rel=0.1)
    assert curve.seconds(1, 0) == pytest.approx(0.03, rel=0.05)


def test_what_rows_have_cost_is_held_against_rows_not_tried_yet() -> None:
    curve = RowCurve(1)
    curve.observe(1, 0, 0.03)
    for _ in range(3):
        curve.observe(4, 0, 0.06)
    assert curve.seconds(16, 0) > 1.3 * curve.seconds(4, 0)


def test_one_slow_pass_changes_what_rows_cost_by_little() -> None:
    curve = linear(0.05)
    before = curve.seconds(8, 0) / curve.seconds(1, 0)
    curve.observe(8, 0, 3.0)
    assert curve.seconds(8, 0) / curve.seconds(1, 0) == pytest.approx(before, rel=0.03)
    curve.observe(1, 0, 3.0)
    assert curve.seconds(8, 0) / curve.seconds(1, 0) == pytest.approx(before, rel=0.03)
    assert curve.seconds(1, 0) < 0.05


def test_a_busier_machine_makes_all_passes_dearer_alike() -> None:
    curve = linear(0.05)
    before = curve.seconds(8, 0) / curve.seconds(1, 0)
    for rows in (1, 4, 1, 8) * 12:
        curve.observe(rows, 0, 2 * 0.03 * (1 + 0.05 * (rows - 1)))
    assert curve.seconds(1, 0) == pytest.approx(0.06, rel=0.1)
    assert curve.seconds(8, 0) / curve.seconds(1, 0) == pytest.approx(before, rel=0.05)
    assert curve.seconds(32, 0) == pytest.approx(2 * 0.03 * 2.55, rel=0.15)


def test_noise_is_averaged_out() -> None:
    source = Random(1)
    curve = RowCurve(1)
    for _ in range(60):
        for rows in (1, 4, 8):
            curve.observe(rows, 0, 0.03 * (1 + 0.1 * (rows - 1)) * source.lognormvariate(0, 0.1))
    for rows in (1, 4, 8):
        assert curve.seconds(rows, 0) == pytest.approx(0.03 * (1 + 0.1 * (rows - 1)), rel=0.08)


def test_a_width_that_was_dear_once_is_cheap_again_in_time() -> None:
    """ADAPT-2: nothing is ruled out for good by a pass that happened to be slow."""
    curve = RowCurve(1)
    curve.observe(1, 0, 0.03)
    for _ in range(2):
        curve.observe(8, 0, 0.09)
    dear = curve.seconds(8, 0) / curve.seconds(1, 0)
    for _ in range(2500):
        curve.observe(1, 0, 0.03)
        curve.observe(2, 0, 0.0303)
    assert curve.seconds(8, 0) / curve.seconds(1, 0) < 1 + (dear - 1) / 2


def test_a_long_context_costs_what_was_measured() -> None:
    curve = RowCurve(1)
    points = [
        (rows, rows * context, 0.03 + 0.001 * rows + 1e-6 * rows * context)
        for rows in (1, 8)
        for context in (64, 1024)
    ]
    curve.measure(points, 1e-6)
    for rows, attended, seconds in points:
        assert curve.seconds(rows, attended) == pytest.approx(seconds, rel=0.02)


def test_between_and_beyond_measured_widths_costs_lie_on_lines() -> None:
    curve = linear(0.1)
    for rows in (3, 6, 12, 24, 64, 256):
        assert curve.seconds(rows, 0) == pytest.approx(0.03 * (1 + 0.1 * (rows - 1)), rel=0.02)


def test_the_widest_pass_is_remembered() -> None:
    curve = RowCurve(2)
    assert curve.widest == 2
    curve.observe(9, 0, 0.1)
    curve.observe(4, 0, 0.1)
    assert curve.widest == 9


def test_other_numbers_of_sequences_begin_with_the_same_costs() -> None:
    curve = linear(0.1)
    other = curve.rebased(4)
    for rows in (4, 8, 16):
        assert other.seconds(rows, 0) == pytest.approx(curve.seconds(rows, 0))


def test_a_curve_survives_being_written_down() -> None:
    curve = linear(0.07)
    for rows in (1, 5, 9):
        curve.observe(rows, 100, 0.05)
    copy = RowCurve.from_dict(json.loads(json.dumps(curve.to_dict())))
    for rows in (*KNOTS, 5, 300):
        assert copy.seconds(rows, 500) == pytest.approx(curve.seconds(rows, 500), rel=0.02)
    assert (copy.base, copy.widest, copy.is_known) == (1, 32, True)


@pytest.mark.parametrize(
    "damage", [{"shape": [1.0]}, {"variance": []}, {"base": 5}, {"level": -1}, {"shape": [0] * 16}]
)
def test_a_damaged_record_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        RowCurve.from_dict(linear(0.1).to_dict() | damage)
