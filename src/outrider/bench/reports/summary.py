"""What a benchmark found, and how it was measured, in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from outrider.bench.base import ALL, OWN, PLAIN, Report, Row
from outrider.bench.reports.numbers import speedup
from outrider.bench.reports.outline import Setting, is_plain, settings


def method(report: Report) -> str:
    """Say in three sentences how it was measured."""
    repeats = (
        "each figure is of one repeat"
        if report.repeats == 1
        else f"each figure is the median of {report.repeats} repeats, with the lowest and highest"
    )
    has_peers = any(row.case.engine != OWN for row in report.rows)
    peers = ", peers in processes of their own" if has_peers else ""
    return (
        "Every case decodes the same prompts, in batches of one task and in turns that go round, "
        f"so that what else the machine does falls on all alike{peers}. "
        f"Rates are total tokens over total seconds, prompts included; {repeats}. "
        "Token ids are compared over their whole length with those of plain decoding in the same "
        "run, sampled ones with the same seeds."
    )


def equality(report: Report) -> tuple[str, ...]:
    """Say how many answers had plain decoding's tokens: outrider's own, and those of peers."""
    rows = [row for each in settings(report) for row in each.overall or each.by_task]
    own = _equality([row for row in rows if row.case.engine == OWN], "outrider")
    peers = _equality([row for row in rows if row.case.engine != OWN], "peers")
    return (*own, *peers)


def _equality(rows: Sequence[Row], whose: str) -> Iterator[str]:
    compared = sum(row.compared for row in rows)
    different = compared - sum(row.identical for row in rows if row.compared)
    if different:
        yield f"{different} of {compared} answers of {whose} differ from plain decoding's."
    elif compared:
        yield f"All {compared} answers of {whose} that were compared have plain decoding's tokens."


def findings(setting: Setting) -> tuple[str, ...]:
    """Say which drafter is fastest in a setting, overall and by task, beside the fastest peer."""
    return tuple(one for weights in _weights(setting) for one in _fastest(setting, weights))


def winners(setting: Setting, tasks: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the fastest drafter of each type of weights: the weights, and a text for each task."""
    for weights in _weights(setting):
        best = [_best(_drafted(setting, weights, task)) for task in tasks]
        if any(best):
            yield (weights, *(_winner(row) for row in best))


def _winner(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{row.case.label} {_gain(row):.2f}x" if _gain(row) > 1 else PLAIN


def _weights(setting: Setting) -> tuple[str, ...]:
    return tuple(dict.fromkeys(case.weights for case in setting.cases if case.engine == OWN))


def _drafted(setting: Setting, weights: str, task: str) -> list[Row]:
    return [
        row
        for row in setting.rows
        if row.task == task
        and row.case.engine == OWN
        and row.case.weights == weights
        and not is_plain(row.case)
        and row.speedup is not None
    ]


def _best(rows: Sequence[Row]) -> Row | None:
    return max(rows, key=_gain, default=None)


def _gain(row: Row) -> float:
    return row.speedup.median if row.speedup is not None else 0.0


def _fastest(setting: Setting, weights: str) -> Iterator[str]:
    where = f"{setting.title}, {weights}"
    best = _best(_drafted(setting, weights, ALL))
    if best is not None:
        yield f"{where}: {_overall(best)}{_against_peers(best, setting)}."
    found = [_best(_drafted(setting, weights, task)) for task in setting.tasks]
    by_task = [row for row in found if row is not None]
    if by_task:
        yield f"{where}, by task: {_by_task(by_task)}."


def _overall(best: Row) -> str:
    named = f"{best.case.label} at {speedup(best.speedup)} the speed of plain decoding"
    if _gain(best) <= 1:
        return f"no drafter is faster than plain decoding; the nearest is {named}"
    return f"the fastest drafter over the whole workload is {named}"


def _by_task(rows: Sequence[Row]) -> str:
    """Name the fastest, each once with its tasks; tasks where nothing pays come last."""
    found: dict[str, list[str]] = {}
    for row in rows:
        label = row.case.label if _gain(row) > 1 else ""
        found.setdefault(label, []).append(f"{row.task} ({_gain(row):.2f}x)")
    lost = found.pop("", None)
    parts = [f"{label} on {_listed(tasks)}" for label, tasks in found.items()]
    if lost is not None:
        parts.append(f"nothing pays on {_listed(lost)}")
    return "; ".join(parts)


def _against_peers(best: Row, setting: Setting) -> str:
    """Compare with the fastest peer whose weights are as wide."""
    width = _width(best.case.weights)
    peers = [r for r in setting.overall if r.case.engine != OWN and _width(r.case.weights) == width]
    if not peers:
        return ""
    peer = max(peers, key=lambda row: row.tokens_per_second.median)
    ours, theirs = best.tokens_per_second.median, peer.tokens_per_second.median
    return (
        f"; it makes {ours:.1f} tokens/s, and {peer.case.label}, the fastest peer with weights as "
        f"wide, {theirs:.1f}"
    )


def _width(weights: str) -> str:
    """Return the bits of a weight, the first number in its type's name ("q8_0", "bfloat16")."""
    number = re.search(r"\d+", weights)
    return number.group() if number else weights


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
