"""Schedulers run to their ends, and a target that gives away any mix-up of caches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from outrider.engine.events import Cancelled, Emitted, Event, Failed, Ticket
from outrider.engine.request import Request
from outrider.engine.result import Collector, Result
from outrider.engine.scheduler import Scheduler
from outrider.targets.base import Rows, ScoredRows
from outrider.types import TokenIds
from support.scripted import ScriptedTarget
from support.tiny import VOCAB


def next_token(context: Sequence[int]) -> int:
    """Return what the telling target says after a context: another token after any other."""
    weighed = sum((place + 1) * (token + 3) for place, token in enumerate(context))
    return weighed % (VOCAB - 1)


def telling_target() -> ScriptedTarget:
    """Return a target whose every token depends on all tokens before it."""

    def logits(context: tuple[int, ...]) -> list[float]:
        row = [0.0] * VOCAB
        row[next_token(context)] = 10.0
        return row

    return ScriptedTarget(logits, VOCAB)


def told(prompt: TokenIds, count: int) -> tuple[int, ...]:
    """Return the first tokens that the telling target says after a prompt."""
    context = list(prompt)
    for _ in range(count):
        context.append(next_token(context))
    return tuple(context[len(prompt) :])


class Telltale(ScriptedTarget):
    """Promises bits, and gives a row other ones if it was decoded and not read in a prompt."""

    numerics = "invariant"
    tells = True

    def __init__(self) -> None:
        super().__init__(telling_target()._logits, VOCAB)
        self.decoded: dict[int, set[int]] = {}

    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        scored = super().score(rows, layers)
        for part, logits in zip(rows, scored.logits, strict=True):
            held = len(self.held[part.sequence].tokens)
            root = held + len(part.pending) - 1
            marks = {mark for mark in self.decoded.get(part.sequence, set()) if mark < held}
            self.decoded[part.sequence] = marks | set(range(root, root + 1 + len(part.tree)))
            if self.tells:
                logits[:, VOCAB - 1] = float(sum(marks))
        return scored


@dataclass
class Log:
    """What a scheduler has told so far."""

    results: dict[Ticket, Result] = field(default_factory=dict)
    errors: dict[Ticket, Exception] = field(default_factory=dict)
    cancelled: list[Ticket] = field(default_factory=list)
    order: list[Ticket] = field(default_factory=list)
    """Tickets in the order of their first tokens."""
    steps: list[list[Event]] = field(default_factory=list)
    _collectors: dict[Ticket, Collector] = field(default_factory=dict)

    def step(self, scheduler: Scheduler) -> list[Event]:
        """Let a scheduler make a step, and check that what it tells is consistent."""
        events = scheduler.step()
        self.steps.append(events)
        for event in events:
            ended = (*self.results, *self.errors, *self.cancelled)
            assert event.ticket not in ended, "an event after the last"
            self._note(event)
        assert scheduler.audit() == []
        return events

    def _note(self, event: Event) -> None:
        ticket = event.ticket
        if isinstance(event, Failed):
            self.errors[ticket] = event.error
        elif isinstance(event, Cancelled):
            self.cancelled.append(ticket)
        else:
            self._add(event)

    def _add(self, event: Emitted) -> None:
        ticket = event.ticket
        if ticket not in self._collectors:
            self._collectors[ticket] = Collector(ticket.request.prompt_ids, ticket.request.seed)
            self.order.append(ticket)
        assert event.chunk.tokens, "a chunk without a token"
        self._collectors[ticket].add(event.chunk)
        reason = event.chunk.finish_reason
        if reason is not None:
            self.results[ticket] = self._collectors[ticket].result(reason, event.state.stats)

    def finish(self, scheduler: Scheduler) -> Log:
        """Let a scheduler make steps until it has nothing left to do."""
        while scheduler.has_work:
            self.step(scheduler)
        return self


def run_all(scheduler: Scheduler, requests: Iterable[Request]) -> list[Result]:
    """Submit requests at once and run them to their ends, which must be good ones."""
    tickets = [scheduler.submit(request) for request in requests]
    log = Log().finish(scheduler)
    assert not log.errors
    return [log.results[ticket] for ticket in tickets]
