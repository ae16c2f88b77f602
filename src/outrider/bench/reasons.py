"""What limits a speedup, in words: the parts of a round that would gain the most by going away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.bench.base import PLAIN, CostPoint, Row

_WORTH = 1.05  # a part by which less would be gained is not worth a word
_MOST = 2
_RIGHT = ((0.65, "sometimes wrong"), (0.35, "often wrong"), (0.0, "rarely right"))
_SELDOM = 0.25  # of the rounds: a drafter that is used in fewer is mostly at rest


@dataclass(frozen=True, slots=True)
class _Term:
    """Something that limits a speedup, and how many times as fast it would go without."""

    gain: float
    words: str


def why(row: Row, plain: Row | None, costs: Sequence[CostPoint]) -> str:
    """Say what limits the speedup of a row over plain decoding, "" where that is not known.

    `costs` are those of passes with the row's weights. The parts are weighed one by one: time that
    is spent on it falls to nothing, drafts are always right, rows cost what one costs.
    """
    if row.case.drafter == PLAIN or None in (row.drafted_share, row.score_s):
        return ""
    if not row.draft_tokens:
        return "nothing was drafted: no draft promised more than its rows cost"
    terms = [
        *_acceptance(row),
        *_rows(row, costs),
        *_drafting(row),
        *_prompts(row, plain),
        *_host(row),
    ]
    worth = sorted((t for t in terms if t.gain >= _WORTH), key=lambda t: -t.gain)[:_MOST]
    return "; ".join(term.words for term in worth) or "nothing much: no part of a round stands out"


def _total(row: Row) -> float:
    return sum(part or 0.0 for part in (row.prefill_s, row.draft_s, row.score_s, row.host_s))


def _acceptance(row: Row) -> list[_Term]:
    """Weigh drafts that are wrong, and rounds without any."""
    tau, drafted, alpha = row.acceptance_length, row.drafted_share, row.acceptance_rate
    if tau is None or not drafted or row.draft_depth is None or alpha is None:
        return []
    if drafted < _SELDOM:
        # In all other rounds there was nothing to copy, or the cost model found it not worth it.
        gain = (1 + (tau - 1) / drafted) / tau
        words = f"drafts in {drafted:.0%} of the rounds only: elsewhere none paid"
    else:
        gain = (1 + drafted * row.draft_depth) / tau
        how = next(words for least, words in _RIGHT if alpha >= least)
        words = f"only {tau:.1f} tokens a round: drafts are {how}"
    return [_Term(gain, f"{words} (alpha {alpha:.2f})")]


def _rows(row: Row, costs: Sequence[CostPoint]) -> list[_Term]:
    """Weigh what the rows of drafts cost over one row.

    Alone, a pass has a draft or none. In a batch some sequences have one: there the mean counts.
    """
    assert row.score_s is not None and row.draft_tokens is not None
    batch, drafted = row.case.batch, row.drafted_share or 0.0
    rows = 1 + row.draft_tokens * (drafted if batch > 1 else 1)
    ratio = row_cost(costs, batch, rows)
    if ratio is None or ratio <= 1:
        return []
    mean = ratio if batch > 1 else 1 + drafted * (ratio - 1)
    total = _total(row)
    words = f"scoring {rows:.0f} rows costs {ratio:.1f}x one row on this machine"
    if batch > 1:
        words = (
            f"scoring {rows:.1f} rows of each of {batch} sequences costs {ratio:.1f}x one row of "
            "each on this machine"
        )
    return [_Term(total / (total - row.score_s + row.score_s / mean), words)]


def row_cost(costs: Sequence[CostPoint], batch: int, rows: float) -> float | None:
    """Return what a pass of so many rows a sequence costs over one of one row, None if unknown.

    Of batches that were not measured the nearest counts, and of contexts the shortest.
    """
    if not costs:
        return None
    nearest = min({p.batch for p in costs}, key=lambda size: (abs(size - batch), size))
    context = min(p.context for p in costs if p.batch == nearest)
    known = sorted((p.rows, p.seconds) for p in costs if (p.batch, p.context) == (nearest, context))
    if known[0][0] != 1:
        return None
    below = max(point for point in known if point[0] <= rows)
    above = min((point for point in known if point[0] >= rows), default=below)
    span = above[0] - below[0]
    share = (rows - below[0]) / span if span else 0.0
    return (below[1] + share * (above[1] - below[1])) / known[0][1]


def _drafting(row: Row) -> list[_Term]:
    total, part = _total(row), row.draft_s or 0.0
    return [_Term(total / (total - part), f"drafting takes {part / total:.0%} of the time")]


def _prompts(row: Row, plain: Row | None) -> list[_Term]:
    """Weigh the reading of prompts, which plain decoding has to do as well."""
    if plain is None or row.prefill_s is None or plain.prefill_s is None:
        return []
    total, others = _total(row), _total(plain)
    if min(total - row.prefill_s, others - plain.prefill_s) <= 0:
        return []
    gain = total / (total - row.prefill_s) * (others - plain.prefill_s) / others
    return [_Term(gain, f"reading prompts takes {row.prefill_s / total:.0%} of the time")]


def _host(row: Row) -> list[_Term]:
    total, part = _total(row), row.host_s or 0.0
    words = f"the host takes {part / total:.0%} of the time"
    return [_Term(total / (total - part), words)]
