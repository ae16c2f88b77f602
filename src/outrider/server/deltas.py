"""What the worker tells of a request: values of their own, to be read while decoding goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from outrider.engine.events import Emitted, Event, Failed, Ticket
from outrider.engine.request import Request
from outrider.engine.stats import Stats
from outrider.types import FinishReason, Token

PREDICTION = "prediction"
"""The name of the drafter that copies what a request predicts."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A request's counters at one moment. Times are seconds of the rounds it took part in."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    tokens: int = 0
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    draft_s: float = 0.0
    score_s: float = 0.0
    prefill_s: float = 0.0
    host_s: float = 0.0
    speedup: float | None = None
    """Tokens a second over what the cost model holds for plain decoding."""
    drafter_error: str | None = None

    @classmethod
    def of(cls, stats: Stats) -> Progress:
        """Return the counters as they stand."""
        return cls(
            prompt_tokens=stats.prompt_tokens,
            reused_tokens=stats.reused_tokens,
            tokens=stats.tokens,
            rounds=stats.rounds,
            proposed=stats.proposed,
            accepted=stats.accepted,
            draft_s=stats.draft_s,
            score_s=stats.score_s,
            prefill_s=stats.prefill_s,
            host_s=stats.host_s,
            speedup=stats.realised_speedup,
            drafter_error=stats.drafter_error,
        )


@dataclass(frozen=True, slots=True)
class Delta:
    """What one round added to a request."""

    ticket: Ticket
    text: str
    tokens: tuple[Token, ...]
    finish_reason: FinishReason | None
    progress: Progress
    drafter: str | None = None
    """Whose draft was scored; None if there was none, or it is not known."""
    drafted: int = 0
    """How many tokens that draft had."""

    @property
    def accepted(self) -> int:
        """How many of them were accepted."""
        return sum(token.source == "accepted" for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Ended:
    """The last word of a request that did not finish; without an error it was cancelled."""

    ticket: Ticket
    error: Exception | None = None


Word: TypeAlias = Delta | Ended


class Reporter:
    """Turns the events of a scheduler into words; used by its worker alone."""

    def __init__(self, drafters: Sequence[str] = ()) -> None:
        """`drafters` are the engine's, by their names."""
        self._drafters = tuple(drafters)
        self._seen: dict[Ticket, Counter[str]] = {}
        self._proposed: dict[Ticket, int] = {}

    def words(self, events: list[Event]) -> list[Word]:
        """Return what there is to tell of a step's events."""
        return [self._word(event) for event in events]

    def _word(self, event: Event) -> Word:
        if isinstance(event, Emitted):
            return self._delta(event)
        self._forget(event.ticket)
        return Ended(event.ticket, event.error if isinstance(event, Failed) else None)

    def _delta(self, event: Emitted) -> Delta:
        ticket, chunk, stats = event.ticket, event.chunk, event.state.stats
        drafted = stats.proposed - self._proposed.get(ticket, 0)
        self._proposed[ticket] = stats.proposed
        drafter = self._drafter(ticket, stats) if drafted else None
        if chunk.finish_reason is not None:
            self._forget(ticket)
        return Delta(
            ticket,
            chunk.text,
            chunk.tokens,
            chunk.finish_reason,
            Progress.of(stats),
            drafter,
            drafted,
        )

    def _drafter(self, ticket: Ticket, stats: Stats) -> str | None:
        """Return the one drafter there was, or that whose count of rounds has just grown.

        Not every round is counted: None where several may have drafted.
        """
        candidates = self._candidates(ticket.request)
        if len(candidates) == 1:
            return candidates[0]
        counts: Counter[str] = Counter()
        for choice in stats.choices.values():
            if choice.drafted:
                counts[choice.drafter] += choice.rounds
        before = self._seen.get(ticket, Counter())
        self._seen[ticket] = counts
        return next((name for name, rounds in counts.items() if rounds > before[name]), None)

    def _candidates(self, request: Request) -> tuple[str, ...]:
        names = self._drafters if request.drafters is None else request.drafters
        if request.prediction_ids:
            return names
        return tuple(name for name in names if name != PREDICTION)

    def _forget(self, ticket: Ticket) -> None:
        self._seen.pop(ticket, None)
        self._proposed.pop(ticket, None)
