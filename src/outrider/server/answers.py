"""The answers of a job as they grow: what has been said, and what a chunk of a stream tells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from outrider.server.deltas import Delta
from outrider.server.origins import Origins
from outrider.server.usage import AnswerUsage, speculation
from outrider.types import FinishReason, Token

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Part:
    """What one round adds to an answer: all that a chunk needs."""

    text: str
    tokens: tuple[Token, ...]
    offsets: tuple[int, ...]
    """Where in the answer the text of each token begins; empty without a tokenizer."""
    finish_reason: FinishReason | None
    details: dict[str, Any] | None
    """What speculation did, if the client wants to know."""


@dataclass(slots=True)
class Answer:
    """One answer, from its first delta to its last."""

    tokenizer: PreTrainedTokenizerBase | None
    wants_origins: bool = False
    wants_offsets: bool = False
    is_silent: bool = False
    """Whether no token was asked for: what comes is told as nothing."""
    texts: list[str] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    usage: AnswerUsage = field(default_factory=AnswerUsage)
    _origins: Origins | None = None

    def __post_init__(self) -> None:
        if self.tokenizer is not None and (self.wants_origins or self.wants_offsets):
            self._origins = Origins(self.tokenizer)

    @property
    def text(self) -> str:
        """All the text so far."""
        return "".join(self.texts)

    def add(self, delta: Delta) -> Part:
        """Take in a round, and return what it adds."""
        delta = _untold(delta) if self.is_silent else delta
        self.usage.add(delta)
        self.texts.append(delta.text)
        self.tokens.extend(delta.tokens)
        self.finish_reason = delta.finish_reason
        offsets = self._origins.follow(delta) if self._origins else [0] * len(delta.tokens)
        self.offsets.extend(offsets)
        details = self._details(delta) if self.wants_origins else None
        return Part(delta.text, delta.tokens, tuple(offsets), delta.finish_reason, details)

    def _details(self, delta: Delta) -> dict[str, Any]:
        pieces = self._origins.pieces(delta.text) if self._origins else ()
        progress = delta.progress
        return speculation([progress]) | {
            "pieces": [piece.to_dict() for piece in pieces],
            "tokens": progress.tokens,
            "drafter": delta.drafter,
            "drafted": delta.drafted,
            "seconds": {
                "prefill": progress.prefill_s,
                "draft": progress.draft_s,
                "score": progress.score_s,
                "host": progress.host_s,
            },
            "speedup": progress.speedup,
        }


def _untold(delta: Delta) -> Delta:
    """Return a delta without the one token that the engine could not leave out."""
    progress = replace(delta.progress, tokens=0)
    return replace(delta, text="", tokens=(), finish_reason="length", progress=progress)


def add_all(answers: list[Answer], deltas: Iterable[tuple[int, Delta]]) -> list[tuple[int, Part]]:
    """Add deltas to the answers they are of; returns what each adds, in order."""
    return [(index, answers[index].add(delta)) for index, delta in deltas]
