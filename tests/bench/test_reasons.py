"""What limits a speedup, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench_fakes import PLAIN, SUFFIX

from outrider.bench.base import CostPoint, Row, Spread
from outrider.bench.reasons import row_cost, why

ONCE = Spread(1.0, 1.0, 1.0)
PLAIN_ROW = Row(PLAIN, "all", 1, 100, ONCE, prefill_s=1.0, draft_s=0.0, score_s=10.0, host_s=0.1)
GOOD = Row(
    SUFFIX,
    "all",
    1,
    100,
    ONCE,
    acceptance_length=4.0,
    acceptance_rate=1.0,
    drafted_share=1.0,
    draft_tokens=3.0,
    draft_depth=3.0,
    prefill_s=0.05,
    draft_s=0.05,
    score_s=5.0,
    host_s=0.05,
)
"""Drafts that are always right, scored for next to nothing."""
FLAT = [CostPoint("float32", 1, 64, rows, 0.1) for rows in (1, 8)]
STEEP = [CostPoint("float32", 1, 64, 1, 0.1), CostPoint("float32", 1, 64, 8, 0.27)]


def test_rows_that_are_dear_are_named_with_their_price() -> None:
    row = replace(GOOD, draft_tokens=7.0, draft_depth=7.0, acceptance_length=8.0)
    assert why(row, PLAIN_ROW, STEEP) == "scoring 8 rows costs 2.7x one row on this machine"


def test_a_batch_is_named_with_the_rows_its_sequences_have_on_average() -> None:
    """Half of the sequences have a draft of six tokens: four rows each."""
    costs = [CostPoint("float32", 4, 64, rows, s) for rows, s in ((1, 0.1), (4, 0.2), (8, 0.9))]
    row = replace(
        GOOD,
        case=replace(SUFFIX, batch=4),
        drafted_share=0.5,
        draft_tokens=6.0,
        draft_depth=6.0,
        acceptance_length=4.0,
    )
    expected = "scoring 4.0 rows of each of 4 sequences costs 2.0x one row of each on this machine"
    assert why(row, PLAIN_ROW, costs) == expected


@pytest.mark.parametrize(
    ("alpha", "words"),
    [(0.31, "rarely right"), (0.4, "often wrong"), (0.79, "sometimes wrong")],
)
def test_wrong_drafts_are_named_with_alpha(alpha: float, words: str) -> None:
    row = replace(GOOD, acceptance_length=1.2, acceptance_rate=alpha)
    assert why(row, PLAIN_ROW, FLAT) == (
        f"only 1.2 tokens a round: drafts are {words} (alpha {alpha:.2f})"
    )


def test_of_a_tree_no_more_can_be_right_than_it_has_levels() -> None:
    """Of nine nodes on three levels, three accepted are all that can be."""
    row = replace(GOOD, draft_tokens=9.0, acceptance_rate=1 / 3)
    assert why(row, PLAIN_ROW, FLAT) == "nothing much: no part of a round stands out"


def test_drafting_the_prompt_and_the_host_are_named_with_their_shares() -> None:
    assert why(replace(GOOD, draft_s=3.0), PLAIN_ROW, FLAT) == "drafting takes 37% of the time"
    assert why(replace(GOOD, prefill_s=4.0), PLAIN_ROW, FLAT) == (
        "reading prompts takes 44% of the time"
    )
    assert why(replace(GOOD, host_s=1.0), PLAIN_ROW, FLAT) == "the host takes 16% of the time"


def test_a_prompt_that_plain_decoding_reads_for_as_long_limits_nothing() -> None:
    """Without it, plain decoding would gain more than drafts do."""
    plain = replace(PLAIN_ROW, prefill_s=80.0)
    assert why(replace(GOOD, prefill_s=4.0), plain, FLAT).startswith("nothing much")


def test_a_drafter_at_rest_is_said_to_rest() -> None:
    row = replace(GOOD, drafted_share=0.12, acceptance_length=1.2, acceptance_rate=0.5)
    assert why(row, PLAIN_ROW, FLAT) == (
        "drafts in 12% of the rounds only: elsewhere none paid (alpha 0.50)"
    )
    none = replace(GOOD, drafted_share=0.0, draft_tokens=None, acceptance_rate=None)
    assert why(none, PLAIN_ROW, FLAT) == (
        "nothing was drafted: no draft promised more than its rows cost"
    )


def test_the_two_that_matter_most_come_in_their_order() -> None:
    row = replace(GOOD, draft_s=3.0, acceptance_length=2.0, acceptance_rate=0.4, host_s=1.0)
    assert why(row, PLAIN_ROW, FLAT) == (
        "only 2.0 tokens a round: drafts are often wrong (alpha 0.40); "
        "drafting takes 33% of the time"
    )


def test_what_limits_little_is_not_named() -> None:
    assert why(GOOD, PLAIN_ROW, FLAT) == "nothing much: no part of a round stands out"


def test_plain_decoding_and_unknown_parts_have_no_reason() -> None:
    assert why(PLAIN_ROW, PLAIN_ROW, FLAT) == ""
    assert why(replace(GOOD, score_s=None), PLAIN_ROW, FLAT) == ""
    assert why(replace(GOOD, drafted_share=None), PLAIN_ROW, FLAT) == ""


def test_the_cost_of_rows_lies_between_those_that_were_measured() -> None:
    costs = [CostPoint("float32", 1, 64, rows, s) for rows, s in ((1, 0.1), (4, 0.2), (8, 0.4))]
    far = [CostPoint("float32", 1, 1024, 1, 0.9), CostPoint("float32", 4, 64, 1, 0.3)]
    found = [row_cost(costs + far, 1, rows) for rows in (1, 4, 6, 8, 99)]
    assert found == pytest.approx([1.0, 2.0, 3.0, 4.0, 4.0])
    assert row_cost(costs + far, 3, 1) == pytest.approx(1.0)
    assert row_cost([], 1, 4) is None
