"""Requests that come and go: each says what it says alone, and leaves nothing behind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from threading import Thread
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from scheduling import Log, run_all, telling_target, told

from outrider.engine.engine import Engine
from outrider.engine.events import Cancelled, Emitted, Ticket
from outrider.engine.scheduler import Scheduler
from outrider.engine.session import Session
from outrider.errors import DrainingError, OptionError, PromptError, QueueFullError
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree
from support.runs import assert_same, decode, draft_model, make_request, shared_target
from support.scripted import ScriptedDrafter, ScriptedTarget, random_trees
from support.tiny import VOCAB, random_ids, tiny_model


def half_right() -> ScriptedDrafter:
    """Return a drafter that knows the telling target's text, and errs at every fifth place."""

    def propose(context: tuple[int, ...], budget: int) -> DraftTree:
        tokens = told(context, budget)
        return DraftTree.chain(
            [(t + (len(context) + i) % 5 // 4) % VOCAB for i, t in enumerate(tokens)]
        )

    return ScriptedDrafter(propose)


# -- what is said ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "trees", "noisy"])
def test_requests_that_come_and_go_say_what_they_say_alone(name: str) -> None:
    """SERVE-3 among others: some are cancelled, prompts are read in pieces, caches used again."""
    drafters = {"none": None, "trees": random_trees(VOCAB), "noisy": draft_model("noisy")}
    engine = Engine(shared_target(), drafters[name], max_draft=4, max_batch=3)
    scheduler = engine.scheduler(prefill_rows=24, max_prefixes=2)
    random, log, tickets = Random(name), Log(), list[Ticket]()
    stem = random_ids(30, 9)
    for _ in range(40):
        if len(tickets) < 14 and random.random() < 0.6:
            prompt = (*stem[: random.choice([0, 12, 30])], *random_ids(random.randint(1, 40)))
            options: dict[str, Any] = {"temperature": random.choice([0.0, 0.9]), "seed": 5}
            request = make_request(prompt, max_new_tokens=random.randint(1, 12), **options)
            tickets.append(scheduler.submit(request, client=random.choice("ab")))
        if tickets and random.random() < 0.1:
            scheduler.cancel(random.choice(tickets))
        log.step(scheduler)
    log.finish(scheduler)
    assert len(log.results) + len(log.cancelled) == len(tickets)
    assert len(log.results) >= 8
    for ticket, result in log.results.items():
        assert_same(result, decode(shared_target(), ticket.request))
    assert set(shared_target()._sequences) == scheduler.sequences
    scheduler.close()
    assert not shared_target()._sequences


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_invariant_numerics_the_bits_are_those_of_a_request_alone(
    dtype: torch.dtype,
) -> None:
    """Log-probabilities too, whoever runs beside it, and however its prompt came to be cached."""
    target = TransformersTarget(tiny_model(dtype=dtype, scale=2.0), numerics="invariant")
    stem = random_ids(70, 1)
    wanted = [
        make_request(
            (*stem, *random_ids(length, length)),
            max_new_tokens=8,
            logprobs=1,
            temperature=temperature,
        )
        for length, temperature in ((3, 0.0), (90, 0.0), (40, 1.0), (1, 0.7))
    ]
    alone = [decode(target, request) for request in wanted]
    engine = Engine(target, random_trees(VOCAB), max_draft=4, max_batch=2)
    scheduler = engine.scheduler(prefill_rows=20, max_prefixes=2)
    for _ in range(2):
        for found, expected in zip(run_all(scheduler, wanted), alone, strict=True):
            assert_same(found, expected)
            assert found.logprobs == expected.logprobs
    assert scheduler.snapshot().reused_tokens >= 4 * 70
    scheduler.close()
    assert not target._sequences


# -- faults ----------------------------------------------------------------------------------------


def spoil(*_: Any) -> Any:
    raise ZeroDivisionError("a processor of one's own")


def nan_after_nine(context: tuple[int, ...]) -> list[float]:
    row = [0.0] * VOCAB
    row[(context[-1] + 1) % VOCAB] = 5.0
    return [math.nan] * VOCAB if context[0] == 9 and len(context) > 4 else row


@pytest.mark.parametrize("drafter", [None, random_trees(VOCAB)])
@pytest.mark.parametrize("at", [0, 3])
def test_a_request_that_fails_ends_with_its_error_and_ends_no_other(
    at: int, drafter: ScriptedDrafter | None
) -> None:
    seen = 0

    def later(ids: torch.Tensor, scores: Any) -> Any:
        nonlocal seen
        seen += 1
        return scores if seen <= at else spoil()

    faults: dict[str, dict[str, Any]] = {
        "processor": {"logits_processors": (later,)},
        "criterion": {"stopping_criteria": (lambda ids, _: len(ids[0]) > at + 1 and spoil(),)},
    }
    good = [make_request((who,), max_new_tokens=12) for who in (3, 7)]
    for options in faults.values():
        seen = 0
        target = ScriptedTarget(nan_after_nine, VOCAB)
        scheduler = Engine(target, drafter, max_draft=3).scheduler(max_prefixes=4)
        tickets = [scheduler.submit(good[0])]
        bad = scheduler.submit(make_request((4,), max_new_tokens=12, **options))
        tickets.append(scheduler.submit(good[1]))
        log = Log().finish(scheduler)
        assert isinstance(log.errors.pop(bad), ZeroDivisionError)
        assert not log.errors
        for ticket, request in zip(tickets, good, strict=True):
            assert_same(log.results[ticket], decode(target, request))
        assert scheduler.snapshot().failed == 1
        # What a failed request has cached is not trusted.
        assert len(scheduler.sequences) == 2


def test_logits_that_are_no_numbers_end_their_request_alone() -> None:
    target = ScriptedTarget(nan_after_nine, VOCAB)
    scheduler = Engine(target).scheduler()
    bad, good = (
        scheduler.submit(make_request((who, 1), max_new_tokens=9, name=f"request of {who}"))
        for who in (9, 2)
    )
    log = Log().finish(scheduler)
    assert "request of 9: no token to choose at position 5" in str(log.errors[bad])
    assert log.results[good].token_ids == tuple(range(2, 11))
    assert not target.held


def test_what_is_wrong_with_a_request_when_its_turn_comes_is_its_own_error() -> None:
    target = telling_target()
    scheduler = Engine(target).scheduler()
    session = Session(target)
    first, second = (
        scheduler.submit(make_request((1,), max_new_tokens=4, session=session)) for _ in range(2)
    )
    log = Log().finish(scheduler)
    assert log.results[first].token_ids == told((1,), 4)
    assert isinstance(log.errors[second], OptionError)
    session.close()
    assert not target.held


def test_a_request_that_can_never_run_is_refused_when_it_is_submitted() -> None:
    scheduler = Engine(telling_target()).scheduler()
    with pytest.raises(PromptError, match="empty"):
        scheduler.submit(make_request(()))
    assert (scheduler.has_work, scheduler.snapshot().submitted) == (False, 0)


class Failing(ScriptedTarget):
    """Raises in passes that a function of their rows says are to fail."""

    long_ones_fail = all_fail = False

    def score(self, rows: Sequence[Any], layers: Sequence[int] = ()) -> Any:
        if self.all_fail or (self.long_ones_fail and len(rows[0].pending) > 32):
            raise RuntimeError("out of memory")
        return super().score(rows, layers)


def test_a_pass_that_fails_ends_those_in_it_and_the_others_go_on() -> None:
    target = Failing(telling_target()._logits, VOCAB)
    scheduler = Engine(target, half_right(), max_draft=3, max_batch=2).scheduler(prefill_rows=64)
    target.long_ones_fail = True
    long = scheduler.submit(make_request(random_ids(60), max_new_tokens=4))
    short = scheduler.submit(make_request((1,), max_new_tokens=9))
    log = Log().finish(scheduler)
    assert str(log.errors[long]) == "out of memory"
    assert log.results[short].token_ids == told((1,), 9)
    target.all_fail = True
    both = [scheduler.submit(make_request((who,), max_new_tokens=9)) for who in (1, 2)]
    log.step(scheduler)
    target.all_fail = False
    third = scheduler.submit(make_request((3,), max_new_tokens=9))
    log.finish(scheduler)
    assert set(log.errors) == {long, *both}
    assert log.results[third].token_ids == told((3,), 9)
    assert not target.held


# -- leaving early ---------------------------------------------------------------------------------


def test_a_cancelled_request_is_gone_before_the_next_round() -> None:
    """SERVE-3: its place is free within a round, and the next in line has it."""
    target = telling_target()
    scheduler = Engine(target, half_right(), max_draft=3, max_batch=1).scheduler()
    first, second, third = (
        scheduler.submit(make_request((who,), max_new_tokens=20)) for who in (1, 2, 3)
    )
    log = Log()
    log.step(scheduler)
    scheduler.cancel(first)
    scheduler.cancel(second)
    scheduler.cancel(first)
    target.passes.clear()
    events = log.step(scheduler)
    assert [type(event) for event in events] == [Cancelled, Cancelled, Emitted]
    assert [event.ticket for event in events] == [first, second, third]
    assert [len(rows) for rows in target.passes] == [1]
    log.finish(scheduler)
    scheduler.cancel(third)
    assert log.step(scheduler) == []
    assert log.results[third].token_ids == told((3,), 20)
    assert scheduler.snapshot().cancelled == 2
    assert not target.held


def test_a_cancelled_turn_of_a_conversation_leaves_it_usable() -> None:
    target = telling_target()
    scheduler = Engine(target).scheduler()
    with Session(target) as session:
        ticket = scheduler.submit(make_request((1, 2), max_new_tokens=20, session=session))
        log = Log()
        for _ in range(3):
            log.step(scheduler)
        scheduler.cancel(ticket)
        log.step(scheduler)
        assert session.cached_tokens == (1, 2, *told((1, 2), 2))
        prompt = (1, 2, *told((1, 2), 3))
        (found,) = run_all(scheduler, [make_request(prompt, max_new_tokens=5, session=session)])
        assert (found.token_ids, found.stats.reused_tokens) == (told(prompt, 5), 4)


def test_closing_ends_everything_at_once() -> None:
    target, drafter = telling_target(), half_right()
    scheduler = Engine(target, drafter, max_draft=3, max_batch=2).scheduler(max_prefixes=3)
    run_all(scheduler, [make_request((5,), max_new_tokens=4)])
    for who in range(4):
        scheduler.submit(make_request((who,), max_new_tokens=50))
    scheduler.step()
    scheduler.close()
    assert (target.held, drafter.open_states, scheduler.has_work) == ({}, 0, False)
    with pytest.raises(DrainingError):
        scheduler.submit(make_request((1,)))


def test_draining_finishes_what_is_there_and_takes_no_more() -> None:
    scheduler = Engine(telling_target(), max_batch=1).scheduler()
    tickets = [scheduler.submit(make_request((who,), max_new_tokens=3)) for who in (1, 2)]
    scheduler.drain()
    assert scheduler.is_draining
    with pytest.raises(DrainingError, match="no more requests are taken"):
        scheduler.submit(make_request((3,)))
    log = Log().finish(scheduler)
    assert set(log.results) == set(tickets)
    assert scheduler.wait() is False


class ComingAndGoing(RuleBasedStateMachine):
    """Any order of submissions, cancellations and steps; nothing is lost, mixed up or left over."""

    prompts = ((1,), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10), (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12), (7, 7))

    def __init__(self) -> None:
        super().__init__()
        self.target, self.drafter = telling_target(), half_right()
        engine = Engine(self.target, self.drafter, max_draft=3, max_batch=3)
        self.scheduler: Scheduler = engine.scheduler(max_queue=4, prefill_rows=16, max_prefixes=2)
        self.log = Log()
        self.tickets: list[Ticket] = []

    @rule(
        prompt=st.sampled_from(prompts),
        repeats=st.sampled_from([1, 5]),
        tokens=st.integers(1, 9),
        client=st.sampled_from("abc"),
    )
    def submit(self, prompt: tuple[int, ...], repeats: int, tokens: int, client: str) -> None:
        request = make_request(prompt * repeats, max_new_tokens=tokens)
        try:
            self.tickets.append(self.scheduler.submit(request, client=client))
        except QueueFullError:
            assert self.scheduler.snapshot().queued >= 4

    @precondition(lambda self: self.tickets)
    @rule(which=st.integers(0, 1000))
    def cancel(self, which: int) -> None:
        self.scheduler.cancel(self.tickets[which % len(self.tickets)])

    @rule()
    def step(self) -> None:
        self.log.step(self.scheduler)

    @invariant()
    def held_is_what_is_accounted_for(self) -> None:
        assert set(self.target.held) == self.scheduler.sequences
        assert len(self.scheduler.sequences) <= 3 + 2

    def teardown(self) -> None:
        self.log.finish(self.scheduler)
        for ticket in self.tickets:
            assert (ticket in self.log.results) != (ticket in self.log.cancelled)
        for ticket, result in self.log.results.items():
            expected = told(ticket.request.prompt_ids, ticket.request.params.max_new_tokens)
            assert result.token_ids == expected
        assert self.drafter.open_states == 0
        self.scheduler.close()
        assert self.target.held == {}


ComingAndGoing.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestComingAndGoing = ComingAndGoing.TestCase


# -- the queue -------------------------------------------------------------------------------------


def test_clients_take_turns_and_each_keeps_its_order() -> None:
    scheduler = Engine(telling_target(), max_batch=1).scheduler()
    wanted = [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5), ("c", 6)]
    for client, who in wanted:
        scheduler.submit(make_request((who,), max_new_tokens=2), client=client)
    log = Log().finish(scheduler)
    assert [ticket.request.prompt_ids[0] for ticket in log.order] == [1, 4, 6, 2, 5, 3]


def test_beyond_the_places_and_the_queue_nobody_is_taken() -> None:
    scheduler = Engine(telling_target(), max_batch=2).scheduler(max_queue=1)
    request = make_request((1,), max_new_tokens=5)
    for _ in range(3):
        scheduler.submit(request)
    with pytest.raises(QueueFullError, match="3 requests are waiting") as caught:
        scheduler.submit(request)
    assert caught.value.retry_after_s > 0
    log = Log()
    log.step(scheduler)
    with pytest.raises(QueueFullError, match="1 requests are waiting"):
        scheduler.submit(request)
    log.finish(scheduler)
    scheduler.submit(request)
    assert scheduler.snapshot().refused == 2
    assert scheduler.snapshot().submitted == 4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_queue": -1}, "max_queue is -1; it must be None or an integer of at least 0"),
        ({"prefill_rows": 15}, "prefill_rows is 15; it must be None or an integer of at least 16"),
        ({"max_prefixes": True}, "max_prefixes is True; it must be an integer of at least 0"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        Engine(telling_target()).scheduler(**options)


def test_requests_may_be_submitted_and_cancelled_from_many_threads() -> None:
    scheduler = Engine(telling_target(), half_right(), max_draft=3, max_batch=4).scheduler()
    tickets: list[Ticket] = []

    def client(who: int) -> None:
        for turn in range(12):
            ticket = scheduler.submit(make_request((who, turn), max_new_tokens=6), client=who)
            tickets.append(ticket)
            scheduler.snapshot()
            if turn % 4 == 3:
                scheduler.cancel(ticket)

    threads = [Thread(target=client, args=(who,)) for who in range(5)]
    for thread in threads:
        thread.start()
    log = Log()
    while any(thread.is_alive() for thread in threads) or scheduler.has_work:
        if scheduler.wait(0.01):
            log.step(scheduler)
    assert len(log.results) + len(log.cancelled) == len(tickets) == 60
    for ticket, result in log.results.items():
        assert result.token_ids == told(ticket.request.prompt_ids, 6)


def test_a_worker_that_waits_is_woken_by_a_request_and_by_the_end() -> None:
    scheduler = Engine(telling_target()).scheduler()
    woken: list[bool] = []
    log = Log()

    def work() -> None:
        while scheduler.wait() or not scheduler.is_draining:
            woken.append(True)
            log.step(scheduler)

    worker = Thread(target=work)
    worker.start()
    ticket = scheduler.submit(make_request((1,), max_new_tokens=3))
    while ticket not in log.results:
        worker.join(0.01)
    scheduler.drain()
    worker.join()
    assert woken


# -- memory ----------------------------------------------------------------------------------------


class Small(ScriptedTarget):
    """Has memory for so many tokens, in caches that are all as long as the longest."""

    memory = 100

    def __init__(self) -> None:
        super().__init__(telling_target()._logits, VOCAB)
        self.lengths: dict[int, int] = {}

    def require_room(self, sequences: int, tokens: int, rows: int, input_tokens: int = 0) -> None:
        longest = max([tokens, *(self.lengths[handle] for handle in self.held)])
        if (len(self.held) + sequences) * longest > self.memory:
            raise OptionError(f"{sequences} more caches of {tokens} tokens do not fit")

    def open(self, max_tokens: int) -> int:
        self.require_room(1, max_tokens, 1)
        handle = super().open(max_tokens)
        self.lengths[handle] = max_tokens
        return handle


def test_a_request_waits_until_its_cache_fits() -> None:
    target = Small()
    scheduler = Engine(target, max_batch=8).scheduler()
    wanted = [
        make_request((who,), max_new_tokens=tokens)
        for who, tokens in enumerate((39, 39, 19, 39), 1)
    ]
    tickets = [scheduler.submit(request) for request in wanted]
    log = Log()
    log.step(scheduler)
    assert len(target.held) == 2
    log.finish(scheduler)
    # Nobody overtakes the one that waits, though its cache may be small.
    assert log.order == tickets
    for ticket, result in log.results.items():
        assert len(result.tokens) == ticket.request.params.max_new_tokens


def test_idle_caches_make_way() -> None:
    target = Small()
    scheduler = Engine(target).scheduler(max_prefixes=4)
    run_all(scheduler, [make_request((1,), max_new_tokens=30), make_request((2,))][:1])
    assert len(target.held) == 1
    run_all(scheduler, [make_request((2,), max_new_tokens=80)])
    assert scheduler.snapshot().idle_caches == 1
    assert len(target.held) == 1


def test_a_request_that_never_fits_fails_and_lets_the_next_in() -> None:
    target = Small()
    scheduler = Engine(target).scheduler()
    large, small = (
        scheduler.submit(make_request((who,), max_new_tokens=tokens))
        for who, tokens in ((1, 200), (2, 10))
    )
    log = Log().finish(scheduler)
    assert str(log.errors[large]) == "1 more caches of 201 tokens do not fit"
    assert log.results[small].token_ids == told((2,), 10)


def test_a_cancelled_request_that_waited_for_memory_no_longer_holds_up_others() -> None:
    target = Small()
    scheduler = Engine(target).scheduler()
    log = Log()
    running = scheduler.submit(make_request((1,), max_new_tokens=40))
    log.step(scheduler)
    waiting = scheduler.submit(make_request((2,), max_new_tokens=90))
    small = scheduler.submit(make_request((3,), max_new_tokens=5))
    log.step(scheduler)
    assert small not in log.order
    scheduler.cancel(waiting)
    log.step(scheduler)
    assert log.order == [running, small]
    log.finish(scheduler)
