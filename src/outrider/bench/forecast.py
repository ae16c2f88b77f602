"""What speedup the parts of a round foretell: by what was measured, and by Leviathan's formula."""

from __future__ import annotations

from outrider.bench.base import Counters
from outrider.bench.table import CostTable
from outrider.bench.totals import Totals


def predicted_speedup(found: Totals, plain: Totals, costs: CostTable) -> float | None:
    """Return the speedup that a table of costs foretells for the rounds that were made.

    The passes count with what the table says their rows take, next to what it says of plain
    decoding's own; how long those took in the same run sets its scale. Reading prompts takes what
    it takes in plain decoding, drafting and the host what they took: the host's time has a part by
    the answer and one by the node, and does not follow from that of plain decoding. None where
    passes were not counted.
    """
    mine, other = found.counters, plain.counters
    if mine is None or other is None or not mine.passes or not other.passes:
        return None
    scale = other.score_s / _table_seconds(other, costs)
    scoring_s = scale * _table_seconds(mine, costs)
    seconds = other.prefill_s + scoring_s + mine.draft_s + mine.host_s
    return found.tokens / seconds / plain.rate


def _table_seconds(counters: Counters, costs: CostTable) -> float:
    return sum(
        one.count * costs.seconds(one.sequences, one.rows / one.sequences, one.context)
        for one in counters.passes
    )


def _num_passes(counters: Counters) -> int:
    return sum(one.count for one in counters.passes)


def cost_ratio(counters: Counters, plain: Counters) -> float | None:
    """Return c: seconds of drafting for each level of a draft, over those of a plain pass."""
    passes = _num_passes(plain)
    if not counters.levels or not passes or not plain.score_s:
        return None
    return counters.draft_s / counters.levels / (plain.score_s / passes)


def leviathan(counters: Counters, ratio: float) -> float | None:
    """Return the speedup of theorem 3.8 of Leviathan et al. 2022 (2211.17192).

    alpha is the acceptance of a level whose parent was accepted, gamma the depth of the drafts.
    Rounds that draft nothing bring one token in the time of one pass.
    """
    tried = sum(counters.attempted_at)
    if not counters.drafts or not tried:
        return None
    alpha = sum(counters.accepted_at) / tried
    gamma = counters.levels / counters.drafts
    drafted = counters.drafts / counters.rounds
    tokens = gamma + 1 if alpha == 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)
    return (drafted * tokens + 1 - drafted) / (1 + drafted * gamma * ratio)
