"""The counters of a scheduler, by clocks that are told."""

from __future__ import annotations

from math import inf

import pytest
from scheduling import Log, run_all, telling_target, told

from outrider.engine.engine import Engine
from outrider.engine.histogram import EDGES, Histogram, Tally
from outrider.engine.stats import Stats
from outrider.types import DraftTree
from support.machines import PLAIN_S, Machine, drafter
from support.runs import make_request
from support.scripted import ScriptedDrafter
from support.simulated import SimulatedClock, on_clock
from support.tiny import VOCAB, random_ids


def test_times_are_those_of_the_rounds() -> None:
    """A pass takes 10 ms, and nothing else takes time."""
    clock = SimulatedClock()
    engine = Engine(on_clock(telling_target(), clock), max_batch=1, clock=clock)
    scheduler = engine.scheduler()
    for who in (1, 2):
        scheduler.submit(make_request((who,), max_new_tokens=5))
    Log().finish(scheduler)
    snapshot = scheduler.snapshot()
    assert snapshot.waiting.total == pytest.approx(0.05)
    assert snapshot.first_token.total == pytest.approx(0.01 + 0.06)
    assert snapshot.per_token.mean == pytest.approx(0.01)
    assert (snapshot.waiting.count, snapshot.first_token.count) == (2, 2)
    assert (snapshot.rounds, snapshot.tokens) == (10, 10)
    assert snapshot.finished == {"length": 2}
    assert (snapshot.queued, snapshot.running, snapshot.reading) == (0, 0, 0)


def test_what_is_going_on_is_counted_too() -> None:
    scheduler = Engine(telling_target(), max_batch=2).scheduler(prefill_rows=16)
    for prompt in ((1,), random_ids(50), (3,)):
        scheduler.submit(make_request(prompt, max_new_tokens=9))
    assert scheduler.snapshot().queued == 3
    scheduler.step()
    snapshot = scheduler.snapshot()
    assert (snapshot.queued, snapshot.running, snapshot.reading) == (1, 2, 1)
    assert (snapshot.tokens, snapshot.prompt_tokens, snapshot.submitted) == (1, 51, 3)


def test_drafts_are_counted_by_depth_over_requests_that_run_and_that_ended() -> None:
    """SERVE-1: right at the first two places of a draft, wrong at the third."""

    def propose(context: tuple[int, ...], budget: int) -> DraftTree:
        tokens = told(context, min(budget, 3))
        return DraftTree.chain([(t + (i == 2)) % VOCAB for i, t in enumerate(tokens)])

    scheduler = Engine(telling_target(), ScriptedDrafter(propose), max_draft=3).scheduler()
    run_all(scheduler, [make_request((1,), max_new_tokens=9)])
    scheduler.submit(make_request((2,), max_new_tokens=9))
    scheduler.step()
    snapshot = scheduler.snapshot()
    assert snapshot.proposed_at == (4, 4, 3)  # the last draft of the first had room for two
    assert snapshot.accepted_at == (4, 4, 0)
    assert snapshot.conditional_acceptance == (1, 1, 0)
    assert snapshot.accepted_per_depth == (1, 1, 0)
    assert (snapshot.proposed, snapshot.accepted, snapshot.tokens) == (11, 8, 12)


def test_the_speedup_is_the_one_there_is() -> None:
    machine = Machine.of([drafter(0.8)])
    scheduler = machine.engine.scheduler()
    run_all(scheduler, [make_request((1,), max_new_tokens=600)])
    snapshot = scheduler.snapshot()
    assert snapshot.speedup == pytest.approx(600 * PLAIN_S / machine.clock.now, rel=0.05)
    assert snapshot.score_s == pytest.approx(machine.clock.now)
    assert sum(snapshot.rounds_by_reason.values()) == snapshot.rounds
    assert set(snapshot.rounds_by_reason) >= {"pays", "comparison"}


def test_the_estimate_of_waiting_follows_what_requests_take() -> None:
    clock = SimulatedClock()
    engine = Engine(on_clock(telling_target(), clock), max_batch=2, clock=clock)
    scheduler = engine.scheduler()
    run_all(scheduler, [make_request((1,), max_new_tokens=100)] * 2)
    assert scheduler._meter.seconds_to_room(2) == pytest.approx(0.5)
    run_all(scheduler, [make_request((1,), max_new_tokens=10)] * 40)
    assert 0.05 <= scheduler._meter.seconds_to_room(2) < 0.1


def test_sums_of_counters_do_not_mind_different_depths() -> None:
    whole = Stats()
    for drafted, accepted in ((1, 1), (4, 2), (2, 0)):
        one = Stats(prompt_tokens=5)
        one.record(DraftTree.chain([1] * drafted), range(accepted), accepted + 1, cut=False)
        whole.add(one)
    assert whole.proposed_at == [3, 2, 1, 1]
    assert whole.accepted_at == [2, 1, 0, 0]
    assert (whole.prompt_tokens, whole.rounds, whole.tokens) == (15, 3, 6)


def test_a_histogram_counts_up_to_its_edges() -> None:
    tally = Tally()
    for seconds in (0.0, 0.0001, 0.00011, 0.3, 1e6):
        tally.add(seconds)
    found = tally.histogram()
    assert (found.counts[0], found.counts[1], found.counts[-1], found.count) == (2, 1, 1, 5)
    assert found.quantile(0.4) == EDGES[0]
    assert found.quantile(0.5) == EDGES[1]
    assert found.quantile(0.8) == 0.5
    assert found.quantile(1) == inf
    assert (Histogram().quantile(0.5), Histogram().mean) == (None, None)
