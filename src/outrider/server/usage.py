"""What answers cost, in tokens: OpenAI's usage object, and what speculation did in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.server.deltas import PREDICTION, Delta, Progress


@dataclass(slots=True)
class AnswerUsage:
    """The counters of one answer, from its deltas."""

    progress: Progress = field(default_factory=Progress)
    accepted_prediction: int = 0
    rejected_prediction: int = 0

    def add(self, delta: Delta) -> None:
        """Take in one round."""
        self.progress = delta.progress
        if delta.drafter == PREDICTION:
            self.accepted_prediction += delta.accepted
            self.rejected_prediction += delta.drafted - delta.accepted


def usage(answers: Sequence[AnswerUsage], answers_each: int) -> dict[str, Any]:
    """Return the usage object of all answers; the first `answers_each` share a prompt, and so on.

    A prompt counts once, however many answers it has.
    """
    firsts = [answer.progress for answer in answers[::answers_each]]
    prompt_tokens = sum(first.prompt_tokens for first in firsts)
    completion_tokens = sum(answer.progress.tokens for answer in answers)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(first.reused_tokens for first in firsts)},
        "completion_tokens_details": {
            "accepted_prediction_tokens": sum(one.accepted_prediction for one in answers),
            "rejected_prediction_tokens": sum(one.rejected_prediction for one in answers),
        },
        "speculation": speculation([answer.progress for answer in answers]),
    }


def speculation(answers: Sequence[Progress]) -> dict[str, Any]:
    """Return what speculation did for answers so far, and by which lossy rule, if by one.

    The acceptance length is tokens over rounds, those that no drafter guessed included.
    """
    rounds, tokens = sum(one.rounds for one in answers), sum(one.tokens for one in answers)
    dropped = [one.drafter_error for one in answers if one.drafter_error is not None]
    counts: dict[str, Any] = {
        "rounds": rounds,
        "proposed": sum(one.proposed for one in answers),
        "accepted": sum(one.accepted for one in answers),
        "acceptance_length": tokens / rounds if rounds else None,
    }
    counts |= {"dropped": dropped[0]} if dropped else {}
    return counts | lossy_field(answers[0].lossy if answers else None)


def lossy_field(rule: str | None) -> dict[str, str]:
    """Return the field by which an object says that its text is not the target's own."""
    return {} if rule is None else {"lossy": rule}
