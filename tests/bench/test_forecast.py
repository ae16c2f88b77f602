"""What costs and acceptance foretell, against sums done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench_fakes import make_record, plain_counters

from outrider.bench.base import CostPoint, Counters, PassCount
from outrider.bench.forecast import cost_ratio, leviathan, predicted_speedup
from outrider.bench.table import CostTable
from outrider.bench.totals import Totals, add_records

COSTS = CostTable(
    CostPoint("float32", batch, 100, rows, seconds)
    for batch, rows, seconds in ((1, 1, 0.2), (1, 4, 0.3), (4, 1, 0.5))
)
"""By this table, four rows cost one and a half times what one costs."""


def plain_totals(tokens: int = 21) -> Totals:
    counters = plain_counters(tokens)
    return Totals(tokens, counters.prefill_s + counters.score_s + counters.host_s, counters)


def drafted_totals(
    rounds: int, rows: int, *, draft_s: float = 0.0, host_s: float = 0.0, tokens: int = 21
) -> Totals:
    passes = (PassCount(1, rows, rounds, 100.0 * rows * rounds, 9.0),)
    counters = Counters(
        rounds=rounds + 1, draft_s=draft_s, host_s=host_s, score_s=9.0, passes=passes
    )
    return Totals(tokens, 9.0 + draft_s + host_s, counters)


def test_a_speedup_is_foretold_by_the_costs_of_the_passes_that_were_made() -> None:
    """Plain: 0.2 to read, 20 passes of 0.1, 0.21 for the host. Here 10 passes of 1.5 times 0.1."""
    expected = (0.2 + 2.0 + 0.21) / (0.2 + 10 * 0.15)
    assert predicted_speedup(drafted_totals(10, 4), plain_totals(), COSTS) == pytest.approx(
        expected
    )


def test_time_of_drafting_and_of_the_host_is_part_of_what_is_foretold() -> None:
    expected = (0.2 + 2.0 + 0.21) / (0.2 + 10 * 0.15 + 0.3 + 0.7)
    found = drafted_totals(10, 4, draft_s=0.7, host_s=0.3)
    assert predicted_speedup(found, plain_totals(), COSTS) == pytest.approx(expected)


def test_how_long_passes_really_took_plays_no_part() -> None:
    """A forecast that followed the measurement would tell nothing."""
    slow = drafted_totals(10, 4)
    assert slow.counters is not None
    slower = replace(slow, seconds=99.0, counters=replace(slow.counters, score_s=90.0))
    one, other = (predicted_speedup(t, plain_totals(), COSTS) for t in (slow, slower))
    assert one == other


def test_a_table_of_another_moment_counts_for_its_proportions_alone() -> None:
    points = [CostPoint("float32", 1, 100, rows, seconds) for rows, seconds in ((1, 0.4), (4, 0.6))]
    twice = CostTable(points)
    found = [predicted_speedup(drafted_totals(10, 4), plain_totals(), c) for c in (COSTS, twice)]
    assert found[0] == pytest.approx(found[1])


def test_nothing_is_foretold_where_passes_were_not_counted() -> None:
    nobody = Totals(21, 3.0, Counters(rounds=11))
    assert predicted_speedup(nobody, plain_totals(), COSTS) is None
    assert predicted_speedup(Totals(21, 3.0, None), plain_totals(), COSTS) is None
    assert predicted_speedup(drafted_totals(10, 4), Totals(21, 3.0, None), COSTS) is None


def test_plain_decoding_foretells_itself() -> None:
    assert predicted_speedup(plain_totals(), plain_totals(), COSTS) == pytest.approx(1.0)


def test_the_cost_ratio_is_drafting_a_level_over_a_plain_pass() -> None:
    counters = Counters(rounds=10, drafts=5, levels=20, draft_s=0.4)
    assert cost_ratio(counters, plain_counters(21)) == pytest.approx(0.02 / 0.1)
    assert cost_ratio(Counters(rounds=10), plain_counters(21)) is None


def leviathan_counters(alpha: tuple[int, int], gamma: int, drafts: int, rounds: int) -> Counters:
    accepted, tried = alpha
    return Counters(
        rounds=rounds,
        drafts=drafts,
        levels=gamma * drafts,
        attempted_at=(tried,),
        accepted_at=(accepted,),
    )


@pytest.mark.parametrize(
    ("alpha", "gamma", "ratio", "expected"),
    [
        # (1 - alpha ** (gamma + 1)) / ((1 - alpha) * (gamma * c + 1))
        ((8, 10), 5, 0.0, (1 - 0.8**6) / 0.2),
        ((8, 10), 5, 0.1, (1 - 0.8**6) / 0.2 / 1.5),
        ((1, 2), 1, 0.5, 1.0),
        ((10, 10), 3, 0.0, 4.0),
        ((0, 10), 3, 0.0, 1.0),
    ],
)
def test_leviathan_is_theorem_3_8(
    alpha: tuple[int, int], gamma: int, ratio: float, expected: float
) -> None:
    counters = leviathan_counters(alpha, gamma, drafts=7, rounds=7)
    assert leviathan(counters, ratio) == pytest.approx(expected)


def test_rounds_without_a_draft_bring_one_token_for_one_pass() -> None:
    counters = leviathan_counters((10, 10), 3, drafts=1, rounds=2)
    assert leviathan(counters, 0.0) == pytest.approx((4 + 1) / 2)
    assert leviathan(Counters(rounds=5), 0.1) is None


def test_totals_add_passes_by_their_shape() -> None:
    one = make_record(counters=plain_counters(3))
    assert add_records([one, one]).counters == Counters(
        rounds=6,
        prefill_s=0.4,
        score_s=0.4,
        host_s=0.06,
        passes=(PassCount(1, 1, 4, 400.0, 0.4),),
    )
    assert add_records([one, make_record()]).counters is None
