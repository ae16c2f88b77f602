"""Why rounds went as they did: for each choice of drafter and length, what it was expected to
bring and what it brought.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

PLAIN = "plain"

Why: TypeAlias = Literal[
    "pays", "fixed", "trial", "comparison", "too dear", "nothing offered", "switched off"
]
"""Why a round has drafts, or has none.

With drafts: they are worth their time; there are as many as the engine was told; a drafter that
rests is tried. Without: a plain pass is due, to compare with; drafts would cost more than they
bring; no drafter had any; neither engine nor requests want any.
"""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a round is expected to do for one request."""

    drafter: str = PLAIN
    tokens: float = 1.0
    seconds: float = 0.0
    plain_s: float = 0.0
    """What the round would take without any draft."""


@dataclass(slots=True)
class Choice:
    """The rounds in which a request had so many tokens of one drafter scored.

    Times are those of whole rounds, whoever shares them. Rounds that read a prompt do not count.
    """

    drafter: str
    drafted: int
    rounds: int = 0
    predicted_tokens: float = 0.0
    tokens: int = 0
    predicted_s: float = 0.0
    seconds: float = 0.0
    plain_s: float = 0.0

    def record(self, forecast: Forecast, tokens: int, seconds: float) -> None:
        """Count a round."""
        self.rounds += 1
        self.predicted_tokens += forecast.tokens
        self.tokens += tokens
        self.predicted_s += forecast.seconds
        self.seconds += seconds
        self.plain_s += forecast.plain_s

    @property
    def predicted_gain(self) -> float | None:
        """Tokens a second, as predicted, over those of plain decoding."""
        return _gain(self.predicted_tokens, self.predicted_s, self.rounds, self.plain_s)

    @property
    def gain(self) -> float | None:
        """Tokens a second, as realised, over those of plain decoding."""
        return _gain(self.tokens, self.seconds, self.rounds, self.plain_s)

    def to_dict(self) -> dict[str, Any]:
        """Return counters and gains as plain values, ready for JSON."""
        counters = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return counters | {"predicted_gain": self.predicted_gain, "gain": self.gain}


def total(choices: Iterable[Choice]) -> Choice:
    """Return all rounds together, as if they were of one choice."""
    whole = Choice("all", 0)
    for choice in choices:
        whole.rounds += choice.rounds
        whole.predicted_tokens += choice.predicted_tokens
        whole.tokens += choice.tokens
        whole.predicted_s += choice.predicted_s
        whole.seconds += choice.seconds
        whole.plain_s += choice.plain_s
    return whole


def _gain(tokens: float, seconds: float, rounds: int, plain_s: float) -> float | None:
    # Plain decoding emits one token a round.
    return tokens / seconds * plain_s / rounds if seconds and rounds else None
