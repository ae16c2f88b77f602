"""On a machine whose costs are known, the foretold speedup is the one that comes out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from outrider.bench.base import CostPoint
from outrider.bench.forecast import predicted_speedup
from outrider.bench.meter import Meter
from outrider.bench.own import _count
from outrider.bench.table import CostTable
from outrider.bench.totals import Totals, add_counters
from outrider.drafters.base import DraftRequest
from outrider.engine.engine import Engine
from outrider.engine.measure import measure_passes
from outrider.targets.base import Rows, ScoredRows
from outrider.types import DraftTree, TokenIds
from support.machines import TEXT
from support.runs import collect, make_request
from support.simulated import SimulatedClock, SimulatedDrafter, SimulatedTarget

WIDTHS = (1, 2, 4, 8, 16, 32)
ROOT_S, ROW_S, SEQUENCE_S = 0.030, 0.002, 0.004
PROMPT_S, COMMIT_S, OPEN_S, BEGIN_S = 0.0005, 0.0015, 0.020, 0.010
LENGTHS = (240, 125, 360, 33)
BY_ROW, BY_SEQUENCE = 2e-6, 1e-5
"""Seconds a token of context adds, for each row, or for all rows of a sequence together."""


class Machine(SimulatedTarget):
    """Pads the rows of each sequence to a width, and spends time on the host as well."""

    def __init__(self, clock: SimulatedClock, by_row: float, by_sequence: float) -> None:
        super().__init__(TEXT, clock, lambda rows, attended: 0.0)
        self._by_row, self._by_sequence = by_row, by_sequence

    def pass_rows(self, counts: Sequence[int]) -> int:
        return len(counts) * next(width for width in WIDTHS if width >= max(counts))

    def open(self, max_tokens: int) -> int:
        self.clock.now += OPEN_S
        return super().open(max_tokens)

    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        scored = super().score(rows, layers)
        if any(len(part.pending) > 1 for part in rows):
            seconds = ROOT_S + PROMPT_S * sum(len(part.pending) for part in rows)
        else:
            computed = self.pass_rows([1 + len(part.tree) for part in rows])
            contexts = [self.cached(part.sequence) for part in rows]
            seconds = ROOT_S + ROW_S * computed + SEQUENCE_S * len(rows)
            seconds += self._by_row * computed * sum(contexts) / len(contexts)
            seconds += self._by_sequence * sum(contexts)
        self.clock.now += seconds
        return ScoredRows(scored.logits, seconds)

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        self.clock.now += COMMIT_S * (1 + len(path))
        super().commit(sequence, path)


class Drafter(SimulatedDrafter):
    """Reads the prompt before it drafts, and takes time for each level."""

    def begin(self, request: DraftRequest) -> list[int]:
        self._clock.now += BEGIN_S
        return super().begin(request)


class TreeDrafter(Drafter):
    """Drafts a chain that it believes in, and beside each of its tokens another one."""

    drafts_trees = True

    def _chain(self, context: TokenIds, budget: int) -> DraftTree:
        chain = super()._chain(tuple(context), (budget + 1) // 2).tokens
        tokens, parents = list(chain), [level - 1 for level in range(len(chain))]
        for level, token in enumerate(chain[: budget - len(chain)]):
            tokens.append((token + 7) % 64)
            parents.append(level - 1)
        return DraftTree(tuple(tokens), tuple(parents))


@cache
def measured_costs(*context: float) -> CostTable:
    """Return what passes cost by the table that a benchmark begins with."""
    clock = SimulatedClock()
    points = measure_passes(Machine(clock, *context), max_batch=4, seconds=1e6, clock=clock)
    return CostTable(
        CostPoint("x", p.batch, p.context, p.rows, p.seconds, p.computed) for p in points
    )


@cache
def decode(drafters: tuple[type[Drafter], ...], batch: int, *context: float) -> Totals:
    """Decode prompts of several lengths in groups of a batch, as a benchmark does."""
    clock = SimulatedClock()
    meter = Meter(Machine(clock, *context))
    built = [
        kind(TEXT, clock, rate, step=0.001, fixed=0.002, name=f"d{i}", seed=i)
        for i, (kind, rate) in enumerate(zip(drafters, (0.8, 0.5), strict=False))
    ]
    engine = Engine(meter.as_target, built, max_batch=batch, clock=clock)
    requests = [
        make_request(tuple(TEXT[:length]), max_new_tokens=20 + length // 9)
        for length in LENGTHS * 2
    ]
    started = clock.now
    counted, tokens = [], 0
    for first in range(0, len(requests), batch):
        meter.reset()
        before = clock.now
        results = collect(engine, requests[first : first + batch])
        counted.append(_count(results, meter, clock.now - before))
        tokens += sum(len(result.token_ids) for result in results)
    return Totals(tokens, clock.now - started, add_counters(counted))


KINDS = {
    "a chain": (Drafter,),
    "a tree": (TreeDrafter,),
    "a router of both": (TreeDrafter, Drafter),
}


@pytest.mark.parametrize("context", [(BY_ROW, 0.0), (0.0, BY_SEQUENCE)], ids=["by row", "at once"])
@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_the_foretold_speedup_is_the_true_one(
    kind: str, batch: int, context: tuple[float, float]
) -> None:
    """Batches of 3 lie between the points of the table, and 8 beyond them."""
    plain, found = decode((), batch, *context), decode(KINDS[kind], batch, *context)
    assert found.counters is not None and found.counters.drafts
    predicted = predicted_speedup(found, plain, measured_costs(*context))
    assert predicted == pytest.approx(found.rate / plain.rate, rel=0.01)
