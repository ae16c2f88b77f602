"""What is lost by cases that change the answer: how far they are from the target's own text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from outrider.bench.base import ALL, OWN, Case, Divergence, HeldWeights, Judged, Record, Row
from outrider.bench.books import Book
from outrider.bench.figures import plain_of, speedup_over
from outrider.bench.plan import Plan, TurnKey
from outrider.difference import count_others
from outrider.verification.lossy import parse_lossy


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found out about answers after they were decoded."""

    judged: Mapping[TurnKey, Judged]
    divergences: Sequence[Divergence]
    held: Sequence[HeldWeights]
    """The target first, with its first type of weights."""


def original_of(case: Case, weights: str) -> Case:
    """Return plain decoding of the target itself, which a case that changes the answer replaces.

    `weights` are those that the target has beside other models: its first type.
    """
    plain = plain_of(case)
    return replace(plain, model="", weights=weights) if case.model else plain


def originals(cases: Sequence[Case], weights: str) -> tuple[Case, ...]:
    """Return the plain decoding that cases which change the answer are held against."""
    found = (original_of(case, weights) for case in cases if case.changes_answer)
    return tuple(dict.fromkeys(found))


def with_losses(
    rows: Sequence[Row], plan: Plan, records: Sequence[Record], found: Findings
) -> tuple[Row, ...]:
    """Return rows that say what is lost, where something may be, and what weights take."""
    weights = found.held[0].weights if found.held else ""
    compared = originals(plan.cases, weights)
    books = {case: Book.of(case, plan, records) for case in plan.cases}
    sizes = {(one.model, one.weights): one.bytes for one in found.held}
    filled = []
    for row in rows:
        case, figures = row.case, dict[str, Any]()
        if case.engine == OWN:
            figures["weight_bytes"] = sizes.get((case.model, case.weights))
        mine = books[case].of_task(row.task)
        if case.changes_answer or case in compared:
            figures["log_likelihood"] = _likelihood(mine, found.judged)
        if case.changes_answer:
            beside = books.get(original_of(case, weights), Book({}))  # it may have failed
            figures |= _losses(row, mine, beside, found)
            figures |= _divergence(row, plan, found.divergences)
        filled.append(replace(row, **figures))
    return tuple(filled)


def _losses(row: Row, mine: Sequence[Record], original: Book, found: Findings) -> dict[str, Any]:
    paired = original.beside(mine)
    return {
        "over_original": speedup_over(paired),
        "differing": _differing(paired) if _draws_alike(row.case) else None,
        "plain_log_likelihood": _likelihood([other for _, other in paired], found.judged),
    }


def _draws_alike(case: Case) -> bool:
    """Whether equal seeds give equal tokens as long as nothing is let pass."""
    return not (case.lossy and case.temperature) or parse_lossy(case.lossy).base == "match"


def _differing(paired: Sequence[tuple[Record, Record]]) -> float | None:
    answers = [
        pair
        for one, other in paired
        for pair in zip(one.decoded.answers, other.decoded.answers, strict=True)
    ]
    places = sum(max(len(ids), len(plain)) for ids, plain in answers)
    others = sum(count_others(ids, plain) for ids, plain in answers)
    return others / places if places else None


def _likelihood(records: Sequence[Record], judged: Mapping[TurnKey, Judged]) -> float | None:
    """Return the log-likelihood of a token on average, None unless all records are judged."""
    found = [judged.get(TurnKey.of(record)) for record in records]
    tokens = sum(len(ids) for record in records for ids in record.decoded.answers)
    if not tokens or None in found:
        return None
    return sum(sum(one.log_likelihoods) for one in found if one is not None) / tokens


def _divergence(row: Row, plan: Plan, divergences: Sequence[Divergence]) -> dict[str, Any]:
    """Return how far a model's distributions are from the target's, after the task's prompts."""
    names = {prompt.name for prompt in plan.prompts if row.task in (ALL, prompt.task)}
    mine = [d for d in divergences if d.model == row.case.model and d.prompt in names]
    tokens = sum(one.tokens for one in mine)
    if not row.case.model or not tokens:
        return {}
    return {
        "divergence": sum(one.nats for one in mine) / tokens,
        "same_choice": sum(one.same_choice for one in mine) / tokens,
    }
