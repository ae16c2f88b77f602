"""Proofs of tiny models, with as little to do as a law allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from outrider import Decoder, load
from outrider.proof.base import Check, Work
from outrider.proof.prove import prove
from outrider.targets.base import Rows, ScoredRows, Target
from outrider.workload.files import WorkloadPrompt
from support.files import word_tokenizer
from support.tiny import shared_model

WORKLOAD = (
    WorkloadPrompt("a", "w1 w2 w3 w1 w2 w3 w1"),
    WorkloadPrompt("b", "w9 w8 w7"),
    WorkloadPrompt("c", "w5 w5 w5 w5"),
)
PROMPTS = (("a", (1, 2, 3, 1, 2, 3, 1)), ("b", (9, 8, 7)), ("c", (5, 5, 5, 5)))


def loaded(drafter: Any = "ngram", **options: Any) -> Decoder:
    """Load the shared tiny model with a word tokenizer."""
    model = options.pop("model", None) or shared_model()
    return load(model, drafter=drafter, tokenizer=word_tokenizer(), profile=False, **options)


def quick(decoder: Decoder, *parts: Any, **options: Any) -> Any:
    """Prove some parts of a decoder, with few tokens and draws."""
    defaults: dict[str, Any] = {"tokens": 60, "draws": 200, "parts": parts}
    return prove(decoder, WORKLOAD, **(defaults | options))


def do(work: Work, *, only: Callable[[str], bool] = lambda _: True) -> dict[str, Check]:
    """Do the units of a part, or those whose keys are wanted; returns their checks by key."""
    found: dict[str, Check] = {}
    try:
        unit = next(work)
        while True:
            check = unit.run() if only(unit.key) else Check("rules", "skipped")
            if only(unit.key):
                found[unit.key] = check
            unit = work.send(check)
    except StopIteration:
        return found


def total(checks: Sequence[Check], name: str) -> int:
    """Return a count over all checks."""
    return sum(check.counts.get(name, 0) for check in checks)


def shake(target: Target, size: float, *, only: int | None = None) -> None:
    """Let a target's logits depend on the rows of a pass, as if rounding did it: by about `size`.

    `only` says of which number of rows; plain passes of one row stay as they are.
    """
    score = target.score

    def shaken(rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        found = score(rows, layers)
        logits = []
        for part, row in zip(rows, found.logits, strict=True):
            width = 1 + len(part.tree)
            generator = torch.Generator().manual_seed(width)
            moved = size * torch.randn(row.shape, generator=generator, dtype=row.dtype)
            is_moved = width > 1 and only in (None, width)
            logits.append(row + moved if is_moved else row)
        return ScoredRows(tuple(logits), found.seconds, found.features)

    target.score = shaken  # type: ignore[method-assign]
