"""Rows of a report, against records made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from bench_fakes import NGRAM, PLAIN, SUFFIX, make_plan, make_record, plain_counters

from outrider.bench.base import ALL, Case, CostPoint, Counters, PassCount, Record, Row, Spread
from outrider.bench.figures import build_rows
from outrider.bench.plan import Plan
from outrider.bench.table import CostTable

IDS = (1, 2, 3, 4)


def rows_of(records: Sequence[Record], plan: Plan | None = None) -> dict[tuple[str, str], Row]:
    """Return the rows by case and task."""
    rows = build_rows(plan or make_plan(PLAIN, SUFFIX, repeats=1), records, {})
    return {(row.case.label, row.task): row for row in rows}


def pair(
    seconds: float, plain_seconds: float, ids: Sequence[int] = IDS, **where: object
) -> list[Record]:
    """Return the records of plain decoding and of suffix of one prompt."""
    return [
        make_record(PLAIN, plain_seconds, [IDS], **where),  # type: ignore[arg-type]
        make_record(SUFFIX, seconds, [ids], **where),  # type: ignore[arg-type]
    ]


def test_a_speedup_is_totals_over_totals() -> None:
    """SERVE-8: 100 in 10 s and 100 in 1 s against 100 in 5 s and 100 in 1 s is 11/6."""
    records = [*pair(5.0, 10.0), *pair(1.0, 1.0, task="edit", prompts=("b",))]
    rows = rows_of(records)
    row = rows["suffix", ALL]
    assert row.speedup is not None
    assert row.speedup.median == pytest.approx(11 / 6)
    assert row.tokens_per_second.median == pytest.approx(8 / 6)
    assert (row.prompts, row.tokens) == (2, 8)
    assert rows["suffix", "chat"].speedup == Spread(2.0, 2.0, 2.0)
    assert rows["none", ALL].speedup == Spread(1.0, 1.0, 1.0)


def test_rows_come_by_case_the_whole_workload_first() -> None:
    records = [*pair(1.0, 2.0), *pair(1.0, 2.0, task="edit", prompts=("b",))]
    assert list(rows_of(records)) == [
        ("none", "all"),
        ("none", "chat"),
        ("none", "edit"),
        ("suffix", "all"),
        ("suffix", "chat"),
        ("suffix", "edit"),
    ]
    alone = make_plan(PLAIN, SUFFIX, tasks=("all",), repeats=1)
    assert list(rows_of(pair(1.0, 2.0, task="all"), alone)) == [("none", "all"), ("suffix", "all")]


def test_the_spread_is_over_repeats_each_against_its_own_plain_run() -> None:
    """A machine that slows down slows both: the third repeat took twice as long."""
    times = [(1.0, 2.0), (1.0, 1.5), (2.0, 4.0)]
    records = [
        record
        for repeat, (seconds, plain_seconds) in enumerate(times)
        for record in pair(seconds, plain_seconds, repeat=repeat)
    ]
    plan = make_plan(PLAIN, SUFFIX, tasks=("chat",), repeats=3)
    row = rows_of(records, plan)["suffix", ALL]
    assert row.speedup == Spread(2.0, 1.5, 2.0)
    assert row.tokens_per_second == Spread(4.0, 2.0, 4.0)
    assert row.tokens == 12


@pytest.mark.parametrize(
    ("ids", "difference"),
    [
        ((1, 2, 3), "a: 3 tokens, plain decoding has 4"),
        ((1, 2, 3, 4, 5), "a: 5 tokens, plain decoding has 4"),
        ((1, 2, 9, 4), "a: token 2 is 9, plain decoding has 3"),
    ],
)
def test_equality_is_over_the_whole_length(ids: Sequence[int], difference: str) -> None:
    """SERVE-7: equal so far is not equal."""
    records = [*pair(1.0, 2.0, ids), *pair(1.0, 2.0, task="edit", prompts=("b",))]
    row = rows_of(records)["suffix", ALL]
    assert (row.identical, row.compared, row.differences) == (1, 2, (difference,))


@pytest.mark.parametrize("repeat", [0, 1])
def test_a_prompt_that_differs_in_one_repeat_is_not_identical(repeat: int) -> None:
    records = [*pair(1.0, 2.0, (1, 2, 3), repeat=repeat), *pair(1.0, 2.0, repeat=1 - repeat)]
    plan = make_plan(PLAIN, SUFFIX, tasks=("chat",), repeats=2)
    row = rows_of(records, plan)["suffix", ALL]
    assert (row.identical, row.compared) == (0, 1)


def test_answers_of_a_batch_are_compared_prompt_by_prompt() -> None:
    plain, suffix = replace(PLAIN, batch=2), replace(SUFFIX, batch=2)
    records = [
        make_record(plain, 2.0, [IDS, (5, 6)], prompts=("a", "c")),
        make_record(suffix, 1.0, [IDS, (5, 7)], prompts=("a", "c")),
    ]
    row = rows_of(records, make_plan(plain, suffix, tasks=("chat",) * 2, repeats=1))["suffix", ALL]
    assert (row.identical, row.compared) == (1, 2)
    assert row.differences == ("c: token 1 is 7, plain decoding has 6",)


def test_only_what_promises_the_same_tokens_is_compared() -> None:
    warm = replace(PLAIN, temperature=1.0)
    cases = [replace(SUFFIX, temperature=1.0), replace(SUFFIX, temperature=1.0, rule="rejection")]
    records = [make_record(warm, answers=[IDS])] + [make_record(c, answers=[IDS]) for c in cases]
    rows = build_rows(make_plan(warm, *cases, tasks=("chat",), repeats=1), records, {})
    assert [row.compared for row in rows if row.task == ALL] == [0, 1, 0]
    assert all(row.speedup == Spread(1.0, 1.0, 1.0) for row in rows)


def test_a_peer_is_held_against_our_plain_decoding_and_its_own() -> None:
    theirs, lookup = Case("none", "vllm"), Case("ngram", "vllm")
    records = [
        make_record(PLAIN, 2.0, [IDS]),
        make_record(theirs, 4.0, [IDS]),
        make_record(lookup, 1.0, [(1, 2)]),
    ]
    rows = rows_of(records, make_plan(PLAIN, theirs, lookup, tasks=("chat",), repeats=1))
    plain, row = rows["vllm none", ALL], rows["vllm ngram", ALL]
    assert plain.speedup == Spread(0.5, 0.5, 0.5)
    assert (plain.own_speedup, plain.identical, plain.compared) == (None, 1, 1)
    assert row.speedup == Spread(1.0, 1.0, 1.0)
    assert (row.own_speedup, row.identical, row.compared) == (2.0, 0, 1)


def test_a_peer_with_weights_of_its_own_is_not_compared() -> None:
    own, theirs = Case("none", weights="int8"), Case("none", "openvino", "int8")
    odd = Case("none", "llama.cpp", "q8_0")
    records = [make_record(case, answers=[IDS]) for case in (own, theirs, odd)]
    rows = build_rows(make_plan(own, theirs, odd, tasks=("chat",), repeats=1), records, {})
    by_engine = {row.case.engine: row for row in rows if row.task == ALL}
    assert by_engine["openvino"].compared == by_engine["llama.cpp"].compared == 0
    assert by_engine["openvino"].speedup == Spread(1.0, 1.0, 1.0)
    assert by_engine["llama.cpp"].speedup is None


def test_of_a_repeat_that_was_broken_off_nothing_counts() -> None:
    whole = [*pair(1.0, 2.0), *pair(1.0, 2.0, task="edit", prompts=("b",))]
    broken = pair(9.0, 2.0, repeat=1)
    plan = make_plan(PLAIN, SUFFIX, repeats=2)
    assert rows_of([*whole, *broken], plan)["suffix", ALL].speedup == Spread(2.0, 2.0, 2.0)
    only = rows_of(broken, plan)
    assert only["suffix", ALL].prompts == 1
    assert ("suffix", "edit") not in only


COUNTED = Counters(
    rounds=5,
    drafts=4,
    levels=10,
    proposed=12,
    accepted=6,
    proposed_at=(4, 4, 4),
    attempted_at=(4, 3, 2),
    accepted_at=(3, 2, 1),
    prefill_s=0.2,
    draft_s=0.1,
    score_s=0.6,
    host_s=0.1,
    passes=(PassCount(1, 1, 1, 100.0, 0.1), PassCount(1, 4, 3, 1200.0, 0.5)),
)


def test_figures_are_those_of_what_was_counted() -> None:
    tokens = tuple(range(11))
    records = [
        make_record(PLAIN, 1.3, [tokens], counters=plain_counters(11)),
        make_record(SUFFIX, 1.0, [tokens], counters=COUNTED),
    ]
    plan = make_plan(PLAIN, SUFFIX, NGRAM, tasks=("chat",), repeats=1)
    points = [CostPoint("float32", 1, 100, rows, seconds) for rows, seconds in ((1, 0.2), (4, 0.3))]
    costs = CostTable(points)
    rows = build_rows(plan, records, {"float32": costs})
    row = next(r for r in rows if r.case == SUFFIX)
    assert row.acceptance_length == pytest.approx(11 / 5)
    assert row.acceptance_rate == pytest.approx(0.5)
    assert row.conditional_acceptance == pytest.approx((3 / 4, 2 / 3, 1 / 2))
    assert row.drafted_share == pytest.approx(4 / 5)
    assert (row.draft_tokens, row.draft_depth) == (3.0, 2.5)
    assert (row.prefill_s, row.draft_s, row.score_s, row.host_s) == (0.2, 0.1, 0.6, 0.1)
    assert row.bound == pytest.approx(11 / 0.9)
    assert row.share_of_bound == pytest.approx(0.9)
    assert row.cost_ratio == pytest.approx(0.01 / 0.1)
    assert row.leviathan is not None
    # 0.2 to read, passes of 0.1 and three of 0.15, 0.1 of drafts and as much of the host
    expected = 1.3 / (0.2 + 0.1 + 0.45 + 0.1 + 0.1)
    assert row.predicted == pytest.approx(expected)
    plain = rows[0]
    assert (plain.acceptance_length, plain.drafted_share, plain.draft_tokens) == (1.0, 0.0, None)
    assert (plain.predicted, plain.cost_ratio, plain.compared) == (None, None, 0)


def test_what_nobody_counted_is_unknown() -> None:
    row = rows_of(pair(1.0, 2.0))["suffix", ALL]
    assert (row.acceptance_length, row.prefill_s, row.bound, row.predicted) == (None,) * 4
    assert row.conditional_acceptance == ()


def test_memory_is_the_most_that_was_held() -> None:
    pairs = [*pair(1.0, 2.0), *pair(1.0, 2.0, repeat=1)]
    records = [
        replace(record, peak_memory=memory)
        for record, memory in zip(pairs, (5, 7, 6, 4), strict=True)
    ]
    plan = make_plan(PLAIN, SUFFIX, tasks=("chat",), repeats=2)
    rows = rows_of(records, plan)
    assert (rows["none", ALL].peak_memory, rows["suffix", ALL].peak_memory) == (6, 7)
