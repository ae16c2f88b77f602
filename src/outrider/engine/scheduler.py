"""Many requests over a long time: they come when they like, share rounds, and leave when they end.

One thread, the worker, calls `step` over and over; nothing but `step`, `audit` and `close` touches
the model. `submit`, `cancel`, `drain`, `wait` and `snapshot` may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from threading import Condition

from outrider.engine.audit import audit
from outrider.engine.events import Cancelled, Emitted, Event, Failed, Ticket
from outrider.engine.meter import Meter, Snapshot
from outrider.engine.options import SchedulerOptions
from outrider.engine.prefixes import Prefix, PrefixCache
from outrider.engine.queue import FairQueue
from outrider.engine.request import (
    Request,
    check_input,
    check_prompt,
    check_scores,
    most_read,
    most_tokens,
)
from outrider.engine.rounds import Rounds, Turn
from outrider.engine.state import RequestState
from outrider.errors import DrainingError, OptionError, QueueFullError
from outrider.types import AnyRule, FinishReason


@dataclass(slots=True, eq=False)
class _Running:
    """A request that runs, and the moments it came to."""

    state: RequestState
    admitted_s: float
    first_s: float = 0.0
    """When its first token came."""


class Scheduler:
    """Runs requests in rounds; they join and leave between rounds. `Engine.scheduler` makes one.

    First come, first served, in turns over clients where `submit` names them. A request is admitted
    once there is a place and its cache fits in memory. Whatever ends it, nothing of it stays but
    its cache, if caches are kept; and an error of its own ends no other.
    """

    def __init__(
        self,
        rounds: Rounds,
        options: SchedulerOptions,
        *,
        rule: AnyRule,
        check: Callable[[Request], None],
    ) -> None:
        """`rule` serves requests that name none; `check` raises for one the engine cannot run."""
        self.options = options
        self._rounds = rounds
        self._target = rounds.target
        self._clock = rounds.clock
        self._rule = rule
        self._check = check
        # What was decoded about one input is of no use to another.
        most = 0 if self._target.reads_input else options.max_prefixes
        self._prefixes = PrefixCache(self._target, most)
        self._meter = Meter()
        self._numbers = count()
        self._most_tokens = 0  # of any request so far: the cache is as long for all
        self._most_read = 0  # and of any input
        self._is_blocked = False  # the next in line waits for memory
        self._changed = Condition()  # guards what other threads see, and the worker alone changes
        self._queue: FairQueue[Ticket] = FairQueue()
        self._running: dict[Ticket, _Running] = {}
        self._to_cancel: list[Ticket] = []
        self._is_draining = False

    # -- from any thread --------------------------------------------------------------------------

    def submit(self, request: Request, *, client: Hashable = None) -> Ticket:
        """Take a request; its events bear the ticket that is returned.

        Raises PromptError or OptionError for one that cannot run, QueueFullError if too many are
        waiting, DrainingError once no more are taken.
        """
        check_prompt(request.prompt_ids, self._target)
        check_input(request, self._target)
        check_scores(request, self._target)
        self._check(request)
        with self._changed:
            if self._is_draining:
                raise DrainingError("no more requests are taken: those that are there are finished")
            self._require_place()
            ticket = Ticket(next(self._numbers), request, client, self._clock())
            self._queue.push(client, ticket)
            self._meter.submit()
            self._changed.notify_all()
            return ticket

    def _require_place(self) -> None:
        most = self.options.max_queue
        waiting = len(self._queue) - (self.options.max_batch - len(self._running))
        if most is not None and waiting >= most:
            self._meter.refuse()
            retry_after_s = self._meter.seconds_to_room(self.options.max_batch)
            raise QueueFullError(
                f"{len(self._queue)} requests are waiting, and no more may; try again in "
                f"{retry_after_s:.1f} s",
                retry_after_s,
            )

    def cancel(self, ticket: Ticket) -> None:
        """End a request before the next round; one that has ended already stays as it is."""
        with self._changed:
            self._to_cancel.append(ticket)
            self._changed.notify_all()

    def drain(self) -> None:
        """Take no more requests; those that wait or run are finished by further steps."""
        with self._changed:
            self._is_draining = True
            self._changed.notify_all()

    @property
    def is_draining(self) -> bool:
        """Whether no more requests are taken."""
        return self._is_draining

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        with self._changed:
            return self._has_work()

    def _has_work(self) -> bool:
        return bool(self._running or self._to_cancel or len(self._queue))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until there is work, or `drain` was called; returns whether there is work."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_work() or self._is_draining, timeout_s)
            return self._has_work()

    def snapshot(self) -> Snapshot:
        """Return all counters."""
        with self._changed:
            states = [running.state for running in self._running.values()]
            return self._meter.snapshot(
                [state.stats for state in states],
                queued=len(self._queue),
                reading=sum(not state.has_begun for state in states),
                idle_caches=len(self._prefixes),
            )

    # -- from the worker --------------------------------------------------------------------------

    def step(self) -> list[Event]:
        """Let cancelled requests go and waiting ones in, run a round, and tell what came of it."""
        events = self._let_go()
        events += self._admit()
        if self._running:
            tickets = list(self._running)
            states = [self._running[ticket].state for ticket in tickets]
            done = self._rounds.run(states, self.options.prefill_rows)
            self._meter.record(done)
            for ticket, turn in zip(tickets, done.turns, strict=True):
                events += self._settle(ticket, turn)
        return events

    def audit(self) -> list[str]:
        """Return what is wrong with what is held, a line each: nothing, unless there is a fault."""
        states = [running.state for running in self._running.values()]
        with self._changed:
            waiting = list(self._queue)
        return audit(self._target, states, list(self._prefixes), waiting)

    @property
    def sequences(self) -> frozenset[int]:
        """The target's sequences that are held, by requests or for prompts to come."""
        states = [running.state for running in self._running.values()]
        kept = [prefix.sequence for prefix in self._prefixes]
        return frozenset([*(state.sequence for state in states), *kept])

    def close(self) -> None:
        """End all that waits or runs, without events, and free all caches."""
        with self._changed:
            self._is_draining = True
            self._queue, self._to_cancel = FairQueue(), []
            self._changed.notify_all()
        with ExitStack() as stack:  # each request ends, whatever the end of another raises
            stack.callback(self._prefixes.clear)
            for ticket in list(self._running):
                stack.callback(self._end, ticket, keep=False)

    # -- coming -----------------------------------------------------------------------------------

    def _admit(self) -> list[Event]:
        """Let requests in as long as there are places, and memory for the next in line."""
        events: list[Event] = []
        while len(self._running) < self.options.max_batch and not self._is_blocked:
            with self._changed:
                ticket = self._queue.peek()
            if ticket is None:
                break
            try:
                state = self._seat(ticket.request)
            except Exception as error:  # noqa: BLE001  a request's own options may raise anything
                self._begin(None)
                self._meter.fail()
                events.append(Failed(ticket, error))
                continue
            self._is_blocked = state is None
            if state is not None:
                self._begin(state)
        return events

    def _begin(self, state: RequestState | None) -> None:
        """Take the next in line out of it, to run if it has a state."""
        now = self._clock()
        with self._changed:
            ticket = self._queue.pop()
            if state is not None:
                self._running[ticket] = _Running(state, now)
                self._meter.admit(now - ticket.submitted_s)

    def _seat(self, request: Request) -> RequestState | None:
        """Return a request ready to run; None if its cache only fits once others have ended."""
        own = request.session is not None
        reads_all = own or request.scores is not None
        prefix = None if reads_all else self._prefixes.take(request.prompt_ids)
        try:
            if not self._has_room(request, prefix):
                return None
            if prefix is None and not own:
                prefix = self._prefixes.open(most_tokens(request, self._target))
            state = RequestState(request, self._target, rule=self._rule, prefix=prefix)
            prefix = None
        finally:
            if prefix is not None:  # the request does not have it
                self._prefixes.put(prefix)
        try:
            self._rounds.begin(state)
        except BaseException:
            self._release(state, keep=False)
            raise
        return state

    def _has_room(self, request: Request, prefix: Prefix | None) -> bool:
        """Whether a request's cache fits, idle ones making way; raises OptionError if it never can.

        There is no telling how far others will grow, so each is planned for at its longest.
        """
        session = request.session
        is_open = prefix is not None or (session is not None and session.is_open)
        tokens = max(self._most_tokens, most_tokens(request, self._target))
        read = max(self._most_read, most_read([request], self._target))
        rows = (len(self._running) + 1) * (1 + self._rounds.longest_draft)
        while True:
            try:
                self._target.require_room(0 if is_open else 1, tokens, rows, read)
            except OptionError:
                if self._prefixes.drop():
                    continue
                if self._running:
                    return False
                raise
            self._most_tokens, self._most_read = tokens, read
            return True

    # -- going ------------------------------------------------------------------------------------

    def _let_go(self) -> list[Event]:
        """End the requests that were cancelled, those that wait included."""
        with self._changed:
            tickets, self._to_cancel = self._to_cancel, []
        events: list[Event] = []
        for ticket in tickets:
            if ticket in self._running:
                self._end(ticket, keep=True)
            else:
                with self._changed:
                    if not self._queue.remove(ticket.client, ticket):
                        continue
                self._is_blocked = False
            self._meter.cancel()
            events.append(Cancelled(ticket))
        return events

    def _settle(self, ticket: Ticket, turn: Turn) -> list[Event]:
        """Tell what a round made of a request, and end it if that was its end."""
        if turn.error is not None:
            # What it has cached is not to be trusted either.
            self._end(ticket, keep=False)
            self._meter.fail()
            return [Failed(ticket, turn.error)]
        if turn.chunk is None:
            return []
        running, now = self._running[ticket], self._clock()
        if running.state.stats.rounds == 1:
            running.first_s = now
            self._meter.begin(now - ticket.submitted_s)
        if turn.chunk.finish_reason is not None:
            self._end(ticket, keep=True)
            self._finish(running, turn.chunk.finish_reason, now)
        return [Emitted(ticket, turn.chunk, turn.state)]

    def _finish(self, running: _Running, reason: FinishReason, now: float) -> None:
        later = running.state.stats.tokens - 1
        per_token_s = (now - running.first_s) / later if later else None
        self._meter.finish(reason, per_token_s, now - running.admitted_s)

    def _end(self, ticket: Ticket, *, keep: bool) -> None:
        """Let go of a request; its cache stays for others if it is worth keeping."""
        with self._changed:
            state = self._running.pop(ticket).state
            self._meter.settle(state.stats)
        self._is_blocked = False
        try:
            self._rounds.end(state)
        finally:
            self._release(state, keep=keep)

    def _release(self, state: RequestState, *, keep: bool) -> None:
        prefix = state.release()
        if prefix is not None and keep:
            self._prefixes.put(prefix)
        elif prefix is not None:
            prefix.close()
