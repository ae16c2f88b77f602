"""What the worker tells of a request: values of their own, to be read while decoding goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from outrider.engine.events import Emitted, Event, Failed, Ticket
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
    lossy: str | None = None
    """The lossy rule that verifies its drafts, if one does."""

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
            lossy=stats.lossy,
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
    """Whose draft was scored; None if there was none."""
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


def words(events: Sequence[Event]) -> list[Word]:
    """Return what there is to tell of a scheduler's events."""
    return [_word(event) for event in events]


def _word(event: Event) -> Word:
    if isinstance(event, Emitted):
        chunk = event.chunk
        return Delta(
            event.ticket,
            chunk.text,
            chunk.tokens,
            chunk.finish_reason,
            Progress.of(event.state.stats),
            chunk.drafter,
            chunk.drafted,
        )
    return Ended(event.ticket, event.error if isinstance(event, Failed) else None)
