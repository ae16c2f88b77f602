"""The sentences of a report say what its figures say."""

from __future__ import annotations

from dataclasses import replace

from reports_sample import sample_report

from outrider.bench.base import ALL, PLAIN, Case, Report, Row, Spread
from outrider.bench.reports.outline import settings
from outrider.bench.reports.summary import equality, findings, method, winners


def row(case: Case, gain: float | None, task: str = ALL, rate: float = 30.0) -> Row:
    measured = None if gain is None else Spread(gain, gain - 0.125, gain + 0.125)
    return Row(case, task, 4, 256, Spread(rate, rate, rate), speedup=measured)


def report(*rows: Row) -> Report:
    return replace(sample_report(), rows=rows)


def said(*rows: Row) -> tuple[str, ...]:
    (setting,) = settings(report(*rows))
    return findings(setting)


def test_the_fastest_drafter_is_named_overall_and_by_task() -> None:
    one, two = Case("suffix"), Case("eagle")
    overall, by_task = said(
        row(Case(PLAIN), None),
        row(one, 1.5),
        row(two, 1.25),
        row(one, 2.0, "edit"),
        row(two, 1.5, "edit"),
        row(one, 1.75, "code"),
        row(two, 0.875, "chat"),
        row(two, 1.125, "math"),
    )
    assert overall == (
        "Greedy, batch 1, float32: the fastest drafter over the whole workload is suffix at 1.50x "
        "(1.38-1.62) the speed of plain decoding."
    )
    assert by_task == (
        "Greedy, batch 1, float32, by task: suffix on edit (2.00x) and code (1.75x); eagle on math "
        "(1.12x); nothing pays on chat (0.88x)."
    )


def test_a_drafter_that_does_not_pay_is_not_called_fast() -> None:
    (overall,) = said(row(Case("suffix"), 0.875))
    assert "no drafter is faster than plain decoding; the nearest is suffix at 0.88x" in overall
    (setting,) = settings(report(row(Case("suffix"), 0.875), row(Case("eagle"), 1.25, "edit")))
    assert list(winners(setting, (ALL, "edit", "chat"))) == [("float32", PLAIN, "eagle 1.25x", "")]


def test_each_type_of_weights_has_its_own_fastest() -> None:
    halves = said(row(Case("suffix"), 1.5), row(Case("suffix", weights="int8"), 1.25))
    assert [text.split(":")[0] for text in halves] == [
        "Greedy, batch 1, float32",
        "Greedy, batch 1, int8",
    ]


def test_the_fastest_peer_of_weights_as_wide_is_named() -> None:
    (overall,) = said(
        row(Case("suffix", weights="int8"), 1.5, rate=60.0),
        row(Case("prompt-lookup", "llama.cpp", "q8_0"), None, rate=40.0),
        row(Case("none", "llama.cpp", "q8_0"), None, rate=30.0),
        row(Case("ngram", "vllm", "bfloat16"), None, rate=90.0),
    )
    assert "60.0 tokens/s" in overall
    assert "llama.cpp prompt-lookup q8_0, the fastest peer with weights as wide, 40.0" in overall
    assert "vllm" not in overall


def test_only_answers_that_were_compared_count_as_equal() -> None:
    same = replace(row(Case("suffix"), 1.5), identical=4, compared=4)
    block = replace(row(Case("eagle", rule="block"), 1.5), identical=3, compared=0)
    peer = replace(row(Case("none", "vllm"), None), identical=3, compared=4)
    by_task = replace(same, task="chat")
    assert equality(report(same, block, by_task)) == (
        "All 4 answers of outrider that were compared have plain decoding's tokens.",
    )
    assert equality(report(peer)) == ("1 of 4 answers of peers differ from plain decoding's.",)
    assert equality(report(block)) == ()


def test_the_method_is_three_sentences_and_speaks_of_what_there_was() -> None:
    alone = method(replace(report(row(Case("suffix"), 1.5)), repeats=1))
    assert alone.count(". ") == 2
    assert "of one repeat" in alone
    assert "peers" not in alone
    assert "median of 5 repeats" in method(sample_report())
    assert "peers in processes of their own" in method(sample_report())
