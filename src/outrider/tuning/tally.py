"""What one way of decoding did over a workload, against plain decoding of the same prompts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from outrider.difference import find_difference

if TYPE_CHECKING:
    from outrider.engine.result import Result


@dataclass(frozen=True, slots=True)
class Run:
    """One prompt decoded one way, and how long that took."""

    result: Result
    seconds: float


@dataclass(frozen=True, slots=True)
class DrafterResult:
    """One row of a tuning run's table; rates are totals over totals, prompts included."""

    drafter: str
    prompts: int
    tokens: int
    tokens_per_second: float
    acceptance_length: float
    """Tokens a pass of the target (tau)."""
    acceptance_rate: float | None
    """Share of the drafted tokens that were accepted, None if nothing was drafted."""
    predicted_speedup: float | None
    """What the cost model expected, over plain decoding."""
    speedup: float
    """Measured, over plain decoding."""
    differences: tuple[str, ...] = ()
    """Prompts whose tokens differ from plain decoding's, and where."""
    error: str | None = None
    """Why the drafter was dropped, if it raised."""

    @property
    def is_identical(self) -> bool:
        """Whether every answer had the tokens of plain decoding, all of them."""
        return not self.differences

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self) | {
            "differences": list(self.differences),
            "identical": self.is_identical,
        }


@dataclass(slots=True)
class Tally:
    """Adds up the runs of one way of decoding."""

    drafter: str
    prompts: int = 0
    tokens: int = 0
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    seconds: float = 0.0
    plain_seconds: float = 0.0
    plain_tokens: int = 0
    predicted_seconds: float | None = 0.0
    differences: list[str] = field(default_factory=list)
    error: str | None = None

    def add(self, name: str, run: Run, plain: Run) -> None:
        """Count one prompt, decoded this way and plainly."""
        stats = run.result.stats
        self.prompts += 1
        self.tokens += stats.tokens
        self.rounds += stats.rounds
        self.proposed += stats.proposed
        self.accepted += stats.accepted
        self.seconds += run.seconds
        self.plain_tokens += plain.result.stats.tokens
        self.plain_seconds += plain.seconds
        self.error = self.error or stats.drafter_error
        self._predict(stats.predicted_speedup, plain)
        difference = find_difference(run.result.token_ids, plain.result.token_ids)
        if difference is not None:
            self.differences.append(f"{name}: {difference}")

    def _predict(self, speedup: float | None, plain: Run) -> None:
        """Add the time the cost model expects: it speaks of rounds, a prompt is read as plainly."""
        if not speedup or self.predicted_seconds is None:
            self.predicted_seconds = None
            return
        reading = min(plain.result.stats.prefill_s, plain.seconds)
        self.predicted_seconds += reading + (plain.seconds - reading) / speedup

    def result(self) -> DrafterResult:
        """Return the row these runs come to."""
        rate, plain_rate = self.tokens / self.seconds, self.plain_tokens / self.plain_seconds
        predicted = self.predicted_seconds
        return DrafterResult(
            drafter=self.drafter,
            prompts=self.prompts,
            tokens=self.tokens,
            tokens_per_second=rate,
            acceptance_length=self.tokens / self.rounds,
            acceptance_rate=self.accepted / self.proposed if self.proposed else None,
            predicted_speedup=self.plain_seconds / predicted if predicted else None,
            speedup=rate / plain_rate,
            differences=tuple(self.differences),
            error=self.error,
        )
