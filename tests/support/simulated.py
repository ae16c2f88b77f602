"""A machine whose time is told, not taken: targets and drafters that cost what a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from outrider.drafters.base import DraftRequest
from outrider.targets.base import Rows, ScoredRows
from outrider.types import DraftTree
from support.scripted import ScriptedDrafter, ScriptedTarget

PassTime = Callable[[int, int], float]
"""Seconds of a pass, by its rows and the context tokens they look at."""


class SimulatedClock:
    """Tells the time that simulated work has taken."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def on_clock(target: ScriptedTarget, clock: SimulatedClock) -> ScriptedTarget:
    """Let each pass of a target take 10 ms by a clock by which nothing else takes time."""
    score = target.score

    def timed(rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        clock.now += 0.01
        return score(rows, layers)

    target.score = timed  # type: ignore[method-assign]
    return target


class SimulatedTarget(ScriptedTarget):
    """Says a text over and over, and takes as long for a pass as a function of it says."""

    def __init__(
        self, text: Sequence[int], clock: SimulatedClock, pass_time: PassTime, *, vocab: int = 64
    ) -> None:
        def logits(context: tuple[int, ...]) -> list[float]:
            row = [0.0] * vocab
            row[text[(len(context) - 1) % len(text)]] = 10.0
            return row

        super().__init__(logits, vocab)
        self.clock = clock
        self._pass_time = pass_time
        self.drafted: list[int] = []
        """Nodes scored in each pass."""

    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        scored = super().score(rows, layers)
        count = sum(len(part.pending) + len(part.tree) for part in rows)
        attended = sum(
            (len(part.pending) + len(part.tree)) * self.cached(part.sequence) for part in rows
        )
        seconds = self._pass_time(count, attended)
        self.clock.now += seconds
        self.drafted.append(sum(len(part.tree) for part in rows))
        self.passes.clear()
        return ScoredRows(scored.logits, seconds)


class SimulatedDrafter(ScriptedDrafter):
    """Knows the text, and is right at each place with a probability that may depend on the place.

    At one place it is right always or never, however often it is asked.
    A proposal takes `fixed` seconds, and `step` for each of its tokens; each request more makes
    its steps longer by a share `crowding`.
    """

    def __init__(
        self,
        text: Sequence[int],
        clock: SimulatedClock,
        rate: float | Callable[[int], float],
        *,
        step: float = 0.0,
        fixed: float = 0.0,
        crowding: float = 0.0,
        is_lookup: bool = False,
        name: str = "simulated",
        seed: int = 0,
        vocab: int = 64,
    ) -> None:
        super().__init__(self._chain)
        self.name = name
        self.is_lookup = is_lookup
        self.begun = 0
        self._text, self._clock, self._vocab = text, clock, vocab
        self._rate = rate if callable(rate) else (lambda _: rate)
        self._step, self._fixed, self._crowding = step, fixed, crowding
        self._seed = seed

    def begin(self, request: DraftRequest) -> list[int]:
        self.begun += 1
        return super().begin(request)

    def propose(self, states: Sequence[list[int]], budgets: Sequence[int]) -> list[DraftTree]:
        step = self._step * (1 + self._crowding * (len(states) - 1))
        self._clock.now += self._fixed + step * max(budgets)
        return super().propose(states, budgets)

    def _chain(self, context: tuple[int, ...], budget: int) -> DraftTree:
        start = len(context) - 1
        tokens = []
        for place in range(start, start + budget):
            right = self._text[place % len(self._text)]
            is_right = Random(f"{self._seed} {place}").random() < self._rate(place)
            tokens.append(right if is_right else (right + 1) % self._vocab)
        return DraftTree.chain(tokens)
