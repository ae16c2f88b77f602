"""What a report says of how it came to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench_fakes import NGRAM, PLAIN, SUFFIX, make_plan, make_record, open_log

from outrider.bench.base import Record
from outrider.bench.notes import find_notes
from outrider.bench.plan import Plan


def notes(folder: Path, plan: Plan, *records: Record, after: float | None = None) -> list[str]:
    with open_log(folder) as log:
        for record in records:
            log.add_record(record)
        return list(find_notes(plan, log, after))


def test_an_undisturbed_run_needs_no_notes(tmp_path: Path) -> None:
    assert notes(tmp_path, make_plan(), make_record(PLAIN), make_record(SUFFIX)) == []


def test_time_that_ran_out_is_told_with_what_was_done(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, make_plan(), make_record(PLAIN), after=2.5)
    assert note == (
        "Time ran out after 2.5 minutes, with 1 of 12 turns taken. The same command again goes on."
    )


def test_a_batch_that_its_prompts_do_not_fill_is_told(tmp_path: Path) -> None:
    many = replace(PLAIN, batch=2)
    plan = make_plan(PLAIN, many, tasks=("chat", "chat", "edit"))
    (note,) = notes(tmp_path, plan)
    assert note.startswith("Batch 2: ")
    assert "prompts of edit do not fill it" in note


def test_a_case_of_another_run_than_plain_decoding_is_named(tmp_path: Path) -> None:
    records = [
        make_record(case, repeat=repeat, run=run)
        for case, run in ((PLAIN, 0), (SUFFIX, 0), (NGRAM, 1))
        for repeat in (0, 1)
    ]
    expected = "ngram was measured in another run than plain decoding, not beside it."
    assert notes(tmp_path, make_plan(), *records) == [expected]


def test_one_turn_after_an_interruption_is_no_matter(tmp_path: Path) -> None:
    records = [
        make_record(PLAIN, run=0),
        make_record(SUFFIX, run=1),
        make_record(PLAIN, repeat=1, run=1),
        make_record(SUFFIX, repeat=1, run=1),
    ]
    assert notes(tmp_path, make_plan(), *records) == []
