"""Passes are counted as they are, and nothing else about a target changes."""

from __future__ import annotations

import pytest

from outrider.bench.base import PassCount
from outrider.bench.meter import Meter
from outrider.engine.engine import Engine
from outrider.targets.base import Rows
from outrider.types import DraftTree
from support.machines import TEXT, drafter, flat
from support.runs import collect, make_request
from support.simulated import SimulatedClock, SimulatedTarget


def metered() -> tuple[SimulatedTarget, Meter]:
    target = SimulatedTarget(TEXT, SimulatedClock(), flat)
    return target, Meter(target)


def test_plain_decoding_is_a_prompt_and_passes_of_one_row() -> None:
    target, meter = metered()
    (result,) = collect(Engine(meter.as_target), [make_request((1, 2, 3), max_new_tokens=6)])
    assert (meter.drafts, meter.levels) == (0, 0)
    (found,) = meter.passes
    # The first token came with the prompt; the cache held 3 to 7 tokens.
    assert (found.sequences, found.rows, found.count) == (1, 1, 5)
    assert found.attended == 3 + 4 + 5 + 6 + 7
    assert meter.prefill_s + meter.score_s == pytest.approx(target.clock.now)
    assert result.stats.prefill_s == meter.prefill_s
    assert result.stats.score_s == meter.score_s == found.seconds


def test_drafts_are_counted_with_their_rows_and_levels() -> None:
    target, meter = metered()
    engine = Engine(meter.as_target, drafter(1.0)(target.clock), max_draft=3)
    (result,) = collect(engine, [make_request((1,), max_new_tokens=12)])
    assert meter.drafts == result.stats.rounds
    assert meter.levels == result.stats.proposed
    assert sum(one.count for one in meter.passes) == result.stats.rounds
    assert {one.rows for one in meter.passes} <= {1, 2, 3, 4}


def test_a_branching_draft_has_the_levels_of_its_longest_branch() -> None:
    _, meter = metered()
    tree = DraftTree((1, 2, 3, 4), (-1, -1, 0, 1))
    meter.score([Rows(meter.open(9), (5,), tree)])
    assert (meter.drafts, meter.levels) == (1, 2)
    assert [(one.rows, one.count) for one in meter.passes] == [(5, 1)]


def test_a_pass_of_a_batch_is_one_pass() -> None:
    _, meter = metered()
    requests = [make_request((1, 2), max_new_tokens=4) for _ in range(3)]
    collect(Engine(meter.as_target), requests)
    assert [(one.sequences, one.rows, one.count) for one in meter.passes] == [(3, 3, 3)]


def test_counting_begins_anew() -> None:
    _, meter = metered()
    engine = Engine(meter.as_target)
    for _ in range(2):
        meter.reset()
        collect(engine, [make_request((1, 2), max_new_tokens=4)])
        assert [one.count for one in meter.passes] == [3]
    assert isinstance(meter.passes[0], PassCount)


def test_everything_else_is_the_targets_own() -> None:
    target, meter = metered()
    assert meter.vocab_size == target.vocab_size
    assert meter.as_target.max_positions == target.max_positions
    assert meter.pass_rows([1, 4]) == 5
