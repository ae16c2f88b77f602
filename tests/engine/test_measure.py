"""Passes are timed on a target whose clock is part of it: no real time is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from outrider.engine.measure import (
    LONG_CONTEXT,
    MOST_BATCH_ROWS,
    SHORT_CONTEXT,
    glance,
    measure_passes,
)
from outrider.targets.base import Rows, ScoredRows
from support.scripted import ScriptedTarget

Cost = Callable[[int, int, int], float]


class TimedTarget(ScriptedTarget):
    """A target whose passes take as long as a function of (rows, context, number of the pass)."""

    def __init__(self, cost: Cost, max_positions: int = 10_000) -> None:
        super().__init__(lambda _: [0.0] * 4, 4, max_positions)
        self.cost = cost
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        count = sum(len(part.pending) + len(part.tree) for part in rows)
        context = sum(self.cached(part.sequence) for part in rows)
        self.now += self.cost(count, context, len(self.passes))
        found = super().score([Rows(part.sequence, part.pending) for part in rows])
        self.passes[-1] = list(rows)
        return found


def linear(rows: int, context: int, _: int) -> float:
    return 1e-3 * (1 + 0.1 * rows) + 1e-8 * context


def test_every_shape_has_its_own_cost() -> None:
    target = TimedTarget(linear)
    points = measure_passes(target, seconds=30.0, clock=target.clock)
    for point in points:
        count = point.batch * point.rows
        assert point.computed == count
        assert point.attended == count * point.context
        assert point.seconds == pytest.approx(linear(count, point.batch * point.context, 0))
    single = [p.rows for p in points if (p.batch, p.context) == (1, SHORT_CONTEXT)]
    assert single == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    assert {p.context for p in points if p.batch == 1} == {SHORT_CONTEXT, LONG_CONTEXT}
    assert {p.batch for p in points} == {1, 2, 4, 8}
    assert max(p.computed for p in points) == MOST_BATCH_ROWS


def test_a_busy_moment_and_first_passes_change_nothing() -> None:
    """Every fourth pass takes ten times as long, and the first hundred do."""

    def disturbed(rows: int, context: int, index: int) -> float:
        slow = 10 if index % 4 == 0 or index < 50 else 1
        return slow * linear(rows, context, index)

    target = TimedTarget(disturbed)
    for point in measure_passes(target, seconds=30.0, clock=target.clock):
        count = point.batch * point.rows
        assert point.seconds == pytest.approx(linear(count, point.batch * point.context, 0))


@pytest.mark.parametrize("slowness", [30, 300, 30_000])
def test_a_slow_model_is_measured_on_fewer_shapes_in_the_time_there_is(slowness: float) -> None:
    target = TimedTarget(lambda rows, context, index: slowness * linear(rows, context, index))
    points = measure_passes(target, seconds=10.0, clock=target.clock)
    assert points[0].rows == points[0].batch == 1
    last = slowness * linear(64, 64 * 8, 0)
    opening = slowness * linear(SHORT_CONTEXT, 0, 0) + 0.2 * 10.0
    assert target.now <= 10.0 + last + opening
    if slowness > 30:
        assert len(points) < 30
        assert LONG_CONTEXT not in {point.context for point in points}


def test_a_batch_beyond_the_engines_is_not_measured() -> None:
    target = TimedTarget(linear)
    points = measure_passes(target, max_batch=2, clock=target.clock)
    assert {point.batch for point in points} == {1, 2}


@pytest.mark.parametrize("positions", [2, 40, 100])
def test_a_short_model_is_measured_within_its_positions(positions: int) -> None:
    target = TimedTarget(linear, max_positions=positions)
    points = measure_passes(target, max_batch=1, clock=target.clock)
    assert points
    assert all(point.context + point.rows <= positions for point in points)


def test_no_sequence_stays_open_and_none_is_grown() -> None:
    target = TimedTarget(linear)
    measure_passes(target, clock=target.clock)
    assert target.held == {}

    def failing(rows: int, context: int, index: int) -> float:
        if index == 40:
            raise RuntimeError("out of memory")
        return 1e-3

    target = TimedTarget(failing)
    with pytest.raises(RuntimeError, match="out of memory"):
        measure_passes(target, clock=target.clock)
    assert target.held == {}


def test_a_glance_tells_how_rows_compare() -> None:
    target = TimedTarget(linear)
    points = glance(target, clock=target.clock)
    assert [point.rows for point in points] == [1, 2, 4, 8]
    for point in points:
        assert point.seconds == pytest.approx(linear(point.rows, point.context, 0))


def test_a_glance_at_a_slow_model_ends_soon_and_leaves_nothing_open() -> None:
    target = TimedTarget(lambda rows, context, _: 1.0)
    assert not glance(target, clock=target.clock)
    assert target.now < 3
    assert not target.held


def test_the_first_pass_of_a_shape_does_not_count() -> None:
    target = TimedTarget(lambda rows, context, index: 0.05 if index < 5 else 0.001)
    found = [point.seconds for point in glance(target, clock=target.clock)]
    assert found == pytest.approx([0.001] * 4)
