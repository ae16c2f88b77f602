"""What an evaluation counts: prompts decoded with a drafter and plainly, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outrider.difference import find_difference

if TYPE_CHECKING:
    from outrider.engine.result import Result


@dataclass(frozen=True, slots=True)
class Score:
    """How the drafts for the prompts of a task fared; rates are totals over totals."""

    temperature: float
    task: str
    prompts: int
    tokens: int
    acceptance_length: float
    """Tokens a pass of the target (tau)."""
    conditional_acceptance: tuple[float, ...]
    """By depth, accepted over proposed with an accepted parent."""
    identical: float | None
    """Share of the prompts with the very tokens of plain decoding, None where the rule keeps the
    law of the text only."""
    tokens_per_second: float
    speedup: float
    """Tokens a second over those of plain decoding, prompts included."""


@dataclass(frozen=True, slots=True)
class Run:
    """A prompt decoded both ways."""

    drafted: Result
    seconds: float
    plain: Result
    plain_seconds: float

    @property
    def difference(self) -> str | None:
        """Where the tokens part, None if they are the same."""
        return find_difference(self.drafted.token_ids, self.plain.token_ids)


@dataclass(slots=True)
class Tally:
    """Adds up the runs of one task at one temperature."""

    prompts: int = 0
    tokens: int = 0
    rounds: int = 0
    seconds: float = 0.0
    plain_tokens: int = 0
    plain_seconds: float = 0.0
    attempted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    error: str | None = None

    def add(self, name: str, run: Run) -> None:
        """Count one prompt, called so."""
        stats = run.drafted.stats
        self.prompts += 1
        self.tokens += stats.tokens
        self.rounds += stats.rounds
        self.error = self.error or stats.drafter_error
        if run.difference is not None:
            self.differences.append(f"{name}: {run.difference}")
        self.seconds += run.seconds
        self.plain_tokens += run.plain.stats.tokens
        self.plain_seconds += run.plain_seconds
        self.attempted = _sum(self.attempted, stats.attempted_at)
        self.accepted = _sum(self.accepted, stats.accepted_at)

    def score(self, temperature: float, task: str, is_exact: bool) -> Score:
        """Return what the runs come to."""
        rate, plain_rate = self.tokens / self.seconds, self.plain_tokens / self.plain_seconds
        depths = zip(self.accepted, self.attempted, strict=True)
        return Score(
            temperature=temperature,
            task=task,
            prompts=self.prompts,
            tokens=self.tokens,
            acceptance_length=self.tokens / self.rounds,
            conditional_acceptance=tuple(right / tried for right, tried in depths if tried),
            identical=1 - len(self.differences) / self.prompts if is_exact else None,
            tokens_per_second=rate,
            speedup=rate / plain_rate,
        )


def _sum(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Add counts by depth; either may reach deeper."""
    width = max(len(one), len(other))
    padded = ([*counts, *[0] * (width - len(counts))] for counts in (one, other))
    return [a + b for a, b in zip(*padded, strict=True)]
