"""Drafts follow the load: none where a pass has no rows to spare, and back when it has."""

from __future__ import annotations

import pytest
from scheduling import Log

from outrider.engine.choices import Why
from outrider.engine.events import Ticket
from outrider.engine.scheduler import Scheduler
from support.machines import PLAIN_S, TEXT, Machine, drafter
from support.runs import make_request


def crowded(rows: int, attended: int) -> float:
    """A machine that computes 16 rows as fast as one, and beyond that is as busy as it has rows."""
    return PLAIN_S * max(1.0, rows / 16)


class Clients:
    """So many clients that each ask again as soon as they are answered."""

    def __init__(self, machine: Machine, tokens: int = 40) -> None:
        self.machine = machine
        self.scheduler: Scheduler = machine.engine.scheduler()
        self.reasons: list[Why | None] = []
        self._request = make_request((1,), max_new_tokens=tokens)
        self._open: set[Ticket] = set()

    def ask(self, clients: int, rounds: int) -> float:
        """Keep so many requests open for so many rounds; returns the tokens drafted a round."""
        log = Log()
        drafted = self.machine.target.drafted
        before = len(drafted)
        self.reasons.clear()
        for _ in range(rounds):
            while len(self._open) < clients:
                self._open.add(self.scheduler.submit(self._request))
            log.step(self.scheduler)
            self.reasons.append(self.scheduler.snapshot().last_reason)
            self._open -= set(log.results)
        for result in log.results.values():
            assert result.token_ids[-1] in TEXT
        return sum(drafted[before:]) / (len(drafted) - before)


def test_at_high_load_drafts_shrink_to_nothing_and_come_back() -> None:
    clients = Clients(Machine.of([drafter(0.8)], crowded, max_batch=16))
    alone = clients.ask(1, 150)
    few = clients.ask(4, 150)
    clients.ask(16, 50)
    full = clients.ask(16, 150)
    assert clients.reasons.count("too dear") > 100
    # Those that are there yet have to end first.
    clients.ask(1, 60)
    again = clients.ask(1, 150)
    assert clients.reasons.count("pays") > 100
    assert alone > 4
    assert few / 4 < alone
    assert full < 0.5  # of all 16 requests together
    assert again > 0.8 * alone


def test_a_drafter_that_is_dear_for_many_stays_with_the_few() -> None:
    """What it costs at full load must not be held against it when that is over, nor forgotten."""
    build = drafter(0.8, 0.08, crowding=1.0)  # it works on one request after the other

    def crawling(rows: int, attended: int) -> float:
        return PLAIN_S * max(1.0, rows / 32)

    clients = Clients(Machine.of([build], crawling, max_batch=16))
    clock, seconds = clients.machine.clock, []
    for count in (1, 16, 1, 16, 1):
        clients.ask(count, 60)  # those that are there yet have to end first
        started = clock.now
        clients.ask(count, 40)
        seconds.append(clock.now - started)
        if count == 1:
            assert clients.reasons.count("pays") > 30
    plain = Clients(Machine.of([], crawling, max_batch=16))
    started = plain.machine.clock.now
    plain.ask(16, 40)
    assert max(seconds[1], seconds[3]) < 1.03 * (plain.machine.clock.now - started)


def test_a_long_queue_alone_changes_nothing() -> None:
    """What counts is the batch: who waits costs no row."""
    clients = Clients(Machine.of([drafter(0.8)], crowded, max_batch=2))
    two = clients.ask(2, 200)
    assert clients.ask(40, 200) > 0.8 * two
    assert clients.scheduler.snapshot().queued == 38


def test_requests_that_keep_coming_with_long_prompts_do_not_keep_the_engine_from_learning() -> None:
    """Most rounds read a piece of a prompt; what they decode beside it is priced all the same."""
    machine = Machine.of([drafter(0.9)], max_batch=4)
    scheduler = machine.engine.scheduler(prefill_rows=16)
    log = Log()
    decoding = scheduler.submit(make_request((1,), max_new_tokens=400))
    prompt = (1, *TEXT[:299])
    while decoding not in log.results:
        if scheduler.snapshot().running < 2:
            scheduler.submit(make_request(prompt, max_new_tokens=1))
        log.step(scheduler)
    stats = log.results[decoding].stats
    assert stats.rounds < 200
    (alone,) = Machine.of([drafter(0.9)]).decode(400)
    assert stats.realised_speedup == pytest.approx(alone.stats.realised_speedup, rel=0.1)
    assert sum(choice.rounds for choice in stats.explain()) > 0.8 * stats.rounds
