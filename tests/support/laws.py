"""Whether sampled text has the target's law: transitions counted against the target's own rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch

from outrider.drafters.base import Drafter
from outrider.engine.engine import Engine
from outrider.types import Rule
from support.runs import collect, make_request
from support.scripted import ScriptedTarget
from support.simulated import SimulatedClock, on_clock

VOCABULARY = 4
_RUNS, _LENGTH = 16, 128  # 2,048 tokens

ALARM = 4.0
"""With 48 degrees of freedom, a sound engine raises the alarm for fewer than 1 in 1,000 choices of
the seeds; they are fixed, so that no test is ever wrong by chance."""


def _rows(scale: float, shift: int) -> Callable[[tuple[int, ...]], list[float]]:
    """Return logits that depend on the last two tokens."""
    generator = torch.Generator().manual_seed(shift)
    table = torch.randn(VOCABULARY, VOCABULARY, VOCABULARY, generator=generator) * scale
    rows: list[list[list[float]]] = table.tolist()
    return lambda context: rows[context[-2]][context[-1]]


TARGET_LOGITS = _rows(1.0, 1)
NEAR_LOGITS = _rows(1.0, 2)


def chi_square_excess(
    rule: Rule,
    drafter: Drafter[Any],
    max_draft: int | Literal["auto"] = 3,
    *,
    clock: Callable[[], float] | None = None,
) -> float:
    """Return how far the transitions of sampled text are from the target's law, in deviations.

    Counts (two tokens before, next token) over many runs, against the target's own rows. Without
    a clock of its own the engine takes drafts to be free.
    """
    free = SimulatedClock()
    target = on_clock(ScriptedTarget(TARGET_LOGITS, VOCABULARY), free)
    engine = Engine(target, drafter, rule=rule, max_draft=max_draft, clock=clock or free)
    wanted = [
        make_request((1, 2), temperature=1.0, seed=1000 + run, max_new_tokens=_LENGTH)
        for run in range(_RUNS)
    ]
    shape = (VOCABULARY,) * 3
    counts = torch.zeros(shape, dtype=torch.float64)
    accepted = 0
    for result in collect(engine, wanted):
        text = (*result.prompt_ids, *result.token_ids)
        for a, b, c in zip(text, text[1:], text[2:], strict=False):
            counts[a, b, c] += 1
        accepted += result.stats.accepted
    assert accepted > 0
    laws = torch.tensor(
        [[TARGET_LOGITS((a, b)) for b in range(VOCABULARY)] for a in range(VOCABULARY)],
        dtype=torch.float64,
    ).softmax(-1)
    expected = counts.sum(-1, keepdim=True) * laws
    used = (expected.amin(-1) >= 5)[..., None].expand_as(expected)
    chi_square = float(((counts - expected) ** 2 / expected)[used].sum())
    freedom = int(used.sum()) // VOCABULARY * (VOCABULARY - 1)
    assert freedom >= 24
    return (chi_square - freedom) / math.sqrt(2 * freedom)
