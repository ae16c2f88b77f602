"""From records to the rows of a report: totals over totals, speedups repeat by repeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from outrider.bench.base import ALL, OWN, PLAIN, Case, Record, Row, Spread
from outrider.bench.books import Book
from outrider.bench.forecast import cost_ratio, leviathan, predicted_speedup
from outrider.bench.plan import Plan
from outrider.bench.table import CostTable
from outrider.bench.totals import Totals, add_records
from outrider.difference import find_difference

_SAME_WEIGHTS = ("float32", "bfloat16", "float16")
"""Types in which a peer holds the very weights that outrider does; others it rounds its own way."""


def build_rows(
    plan: Plan, records: Sequence[Record], costs: Mapping[str, CostTable]
) -> tuple[Row, ...]:
    """Return the rows of every case that has records: the whole workload first, then each task.

    `costs` are those of passes, by weights. Of a repeat that was broken off nothing counts, unless
    there is no whole one.
    """
    tasks = (ALL, *plan.tasks) if plan.tasks != (ALL,) else (ALL,)
    rows = []
    books = {case: Book.of(case, plan, records) for case in plan.cases}
    for case, book in books.items():
        plain = books.get(plain_of(case))
        own_plain = books.get(replace(case, drafter=PLAIN)) if case.engine != OWN else None
        for task in tasks:
            mine = book.of_task(task)
            if mine:
                rows.append(
                    _row(
                        case,
                        task,
                        mine,
                        plain,
                        own_plain,
                        costs.get(case.held),
                    )
                )
    return tuple(rows)


def plain_of(case: Case) -> Case:
    """Return outrider's plain decoding that a case is held against."""
    return replace(case, drafter=PLAIN, engine=OWN, rule="match", lossy="")


def promises_same_tokens(case: Case) -> bool:
    """Whether a case must give the tokens of outrider's plain decoding."""
    if case.engine != OWN:
        return case.temperature == 0 and case.weights in _SAME_WEIGHTS
    return not case.lossy and (case.temperature == 0 or case.rule == "match")


def _row(
    case: Case,
    task: str,
    mine: Sequence[Record],
    plain: Book | None,
    own_plain: Book | None,
    costs: CostTable | None,
) -> Row:
    total = add_records(mine)
    paired = plain.beside(mine) if plain else []
    rates = [add_records(records).rate for records in _by_repeat(mine).values()]
    row = Row(
        case=case,
        task=task,
        prompts=len({name for record in mine for name in record.prompts}),
        tokens=total.tokens,
        tokens_per_second=_spread(rates),
        speedup=speedup_over(paired),
        own_speedup=_own_speedup(case, mine, own_plain),
        peak_memory=max((r.peak_memory for r in mine if r.peak_memory), default=None),
        **_comparison(case, paired),
    )
    if total.counters is None or not total.counters.rounds:
        return row
    row = replace(row, **_counted(total))
    if not paired or case == plain_of(case):
        return row
    others = add_records(other for _, other in paired)
    return replace(row, **_foretold(add_records(one for one, _ in paired), others, costs))


def _by_repeat(records: Iterable[Record]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for record in records:
        found.setdefault(record.repeat, []).append(record)
    return found


def _spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def speedup_over(paired: Sequence[tuple[Record, Record]]) -> Spread | None:
    """Return the speedup of records over those beside them, by repeat: of rates, totals each."""
    repeats: dict[int, list[tuple[Record, Record]]] = {}
    for pair in paired:
        repeats.setdefault(pair[0].repeat, []).append(pair)
    ratios = [
        add_records(one for one, _ in pairs).rate / add_records(other for _, other in pairs).rate
        for pairs in repeats.values()
    ]
    return _spread(ratios) if ratios else None


def _own_speedup(case: Case, mine: Sequence[Record], own_plain: Book | None) -> float | None:
    if own_plain is None or case.drafter == PLAIN:
        return None
    found = speedup_over(own_plain.beside(mine))
    return None if found is None else found.median


def _comparison(case: Case, paired: Sequence[tuple[Record, Record]]) -> dict[str, Any]:
    """Return whether answers are plain decoding's, prompt by prompt, over all repeats."""
    if not promises_same_tokens(case) or case == plain_of(case):
        return {}
    found: dict[str, str | None] = {}
    for record, plain in paired:
        answers = zip(record.decoded.answers, plain.decoded.answers, strict=True)
        for name, (ids, plain_ids) in zip(record.prompts, answers, strict=True):
            difference = find_difference(ids, plain_ids)
            found[name] = found.get(name) or difference
    differences = tuple(f"{name}: {text}" for name, text in found.items() if text is not None)
    return {
        "compared": len(found),
        "identical": len(found) - len(differences),
        "differences": differences,
    }


def _counted(total: Totals) -> dict[str, Any]:
    """Return the figures of what was counted."""
    counters = total.counters
    assert counters is not None
    found: dict[str, Any] = {
        "acceptance_length": total.tokens / counters.rounds,
        "acceptance_rate": _ratio(counters.accepted, counters.proposed),
        "conditional_acceptance": tuple(
            accepted / tried
            for accepted, tried in zip(counters.accepted_at, counters.attempted_at, strict=False)
            if tried
        ),
    }
    timed = counters.prefill_s + counters.draft_s + counters.score_s
    if timed:
        bound = total.tokens / timed
        found |= {
            "drafted_share": counters.drafts / counters.rounds,
            "draft_tokens": _ratio(counters.proposed, counters.drafts),
            "draft_depth": _ratio(counters.levels, counters.drafts),
            "bound": bound,
            "share_of_bound": total.rate / bound,
        }
        parts: Sequence[str] = ("prefill_s", "draft_s", "score_s", "host_s")
        found |= {name: getattr(counters, name) for name in parts}
    return found


def _foretold(found: Totals, plain: Totals, costs: CostTable | None) -> dict[str, Any]:
    """Return what the parts of the rounds foretell."""
    counters, other = found.counters, plain.counters
    if counters is None or other is None:
        return {}
    ratio = cost_ratio(counters, other)
    return {
        "cost_ratio": ratio,
        "leviathan": None if ratio is None else leviathan(counters, ratio),
        "predicted": None if costs is None else predicted_speedup(found, plain, costs),
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
