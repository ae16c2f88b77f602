"""How fast a run goes, and what it tells of itself after every step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from outrider.training.figures import Figures
from outrider.training.metrics import Row

Clock: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Report:
    """What a step did, and how far the run has come with it."""

    step: int
    total_steps: int
    epoch: int
    figures: Figures
    held_out: Figures | None
    """Of the batches held out, at the steps that look at them."""
    learning_rate: float
    gradient: float
    """The norm of the gradient, before it was shortened."""
    tokens: int
    """Tokens learnt from so far."""
    tokens_per_second: float
    seconds: float
    """All that the run has taken, earlier parts of it included."""
    seconds_left: float

    def row(self, has_held_out: bool) -> Row:
        """Return the row of the table of metrics."""
        row: dict[str, float | None] = {"epoch": self.epoch, **self.figures.row()}
        row |= {"learning_rate": self.learning_rate, "gradient": self.gradient}
        row |= {"tokens": self.tokens, "tokens_per_second": self.tokens_per_second}
        row |= {"seconds": self.seconds}
        if has_held_out:
            found = self.held_out
            empty = dict.fromkeys(self.figures.row("held_out_"))
            row |= empty if found is None else found.row("held_out_")
        return row


@dataclass(slots=True)
class Pace:
    """Measures a run from the moment it began, or went on."""

    before: float = 0.0
    """Seconds that earlier parts of the run took."""
    clock: Clock = time.perf_counter
    steps: int = 0
    tokens: int = 0
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds since this part of the run began."""
        return max(self.clock() - self._started, 1e-9)

    @property
    def seconds(self) -> float:
        """Seconds the whole run has taken."""
        return self.before + self.elapsed

    def count(self, tokens: int) -> None:
        """Count a step."""
        self.steps += 1
        self.tokens += tokens

    @property
    def tokens_per_second(self) -> float:
        """Tokens learnt from in a second, of this part of the run."""
        return self.tokens / self.elapsed

    def seconds_left(self, steps: int, max_seconds: float | None) -> float:
        """Return how long so many steps will take, or until the time that was given is over."""
        left = steps * self.elapsed / max(1, self.steps)
        return left if max_seconds is None else max(0.0, min(left, max_seconds - self.seconds))
