"""A target whose passes are counted and timed, for whoever drives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from outrider.bench.base import PassCount
from outrider.targets.base import Rows, ScoredRows, Target
from outrider.trees.layout import depths


class Meter:
    """Stands before a target and notes each pass; all else goes to the target as it is."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.reset()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    @property
    def as_target(self) -> Target:
        """The meter, to be driven in the target's place."""
        return cast("Target", self)

    def reset(self) -> None:
        """Begin to count anew."""
        self.prefill_s = 0.0
        """Seconds of passes that read a prompt, whoever shared them."""
        self.score_s = 0.0
        """Seconds of all others."""
        self.drafts = self.levels = 0
        self._passes: dict[tuple[int, int], tuple[int, float, float]] = {}

    @property
    def passes(self) -> tuple[PassCount, ...]:
        """The passes that read no prompt, by sequences and rows."""
        return tuple(
            PassCount(sequences, rows, *found)
            for (sequences, rows), found in sorted(self._passes.items())
        )

    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        """Run a pass of the target, and take note of it."""
        contexts = [self._target.cached(part.sequence) for part in rows]
        scored = self._target.score(rows, layers)
        for part in rows:
            if part.tree.tokens:
                self.drafts += 1
                self.levels += max(depths(part.tree))
        if any(len(part.pending) > 1 for part in rows):
            self.prefill_s += scored.seconds
            return scored
        self.score_s += scored.seconds
        computed = self._target.pass_rows([1 + len(part.tree) for part in rows])
        count, attended, seconds = self._passes.get((len(rows), computed), (0, 0.0, 0.0))
        self._passes[len(rows), computed] = (
            count + 1,
            attended + computed * sum(contexts) / len(contexts),
            seconds + scored.seconds,
        )
        return scored
