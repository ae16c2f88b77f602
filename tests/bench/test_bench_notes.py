"""What a report says of how it came to be."""

from __future__ import annotations

from dataclasses import replace

from bench_fakes import NGRAM, PLAIN, SUFFIX, make_plan, make_record

from outrider.bench.base import Case, Record
from outrider.bench.notes import find_notes
from outrider.bench.plan import Plan


def notes(plan: Plan, *records: Record, after: float | None = None) -> list[str]:
    return list(find_notes(plan, records, after))


def finished(plan: Plan, *runs: int) -> list[Record]:
    """Return the records of a plan; of each case, those of the runs in turn."""
    return [
        make_record(case, task=group.task, prompts=group.names, repeat=repeat, run=run)
        for case, run in zip(plan.cases, runs or [0] * len(plan.cases), strict=True)
        for repeat in range(plan.repeats)
        for group in plan.groups(case.batch)
    ]


def test_an_undisturbed_run_needs_no_notes() -> None:
    assert notes(make_plan(), *finished(make_plan())) == []


def test_time_that_ran_out_is_told_with_what_was_done() -> None:
    (note,) = notes(make_plan(), make_record(PLAIN), after=2.5)
    assert note == (
        "Time ran out after 2.5 min, with 1 of 12 turns taken. The same command again goes on."
    )


def test_a_run_that_was_stopped_is_told_by_the_turns_of_cases_that_have_not_failed() -> None:
    plan = make_plan(PLAIN, SUFFIX)
    (note,) = notes(plan, make_record(PLAIN), make_record(SUFFIX), make_record(NGRAM))
    assert note.startswith("It was stopped, with 2 of 8 turns taken.")


def test_a_batch_that_its_prompts_do_not_fill_is_told() -> None:
    many = replace(PLAIN, batch=2)
    plan = make_plan(PLAIN, many, tasks=("chat", "chat", "edit"))
    (note,) = notes(plan, *finished(plan))
    assert note.startswith("Batch 2: ")
    assert "prompts of edit do not fill it" in note


def test_processes_of_peers_are_told_and_those_that_were_held_later() -> None:
    peers = [Case(mode, "vllm", batch=batch) for mode in ("none", "ngram") for batch in (1, 2)]
    plan = make_plan(PLAIN, *peers, tasks=("chat",) * 2)
    (note,) = notes(plan, *finished(plan))
    assert note.startswith("Peers: 2 processes, each loaded once a run, 2 held at a time")
    held, late = notes(replace(plan, most_processes=1), *finished(plan))
    assert "1 held at a time" in held
    assert late.endswith(": vllm ngram.")


def test_a_case_of_another_run_than_plain_decoding_is_named() -> None:
    expected = "ngram was measured in another run than plain decoding, not beside it."
    assert notes(make_plan(), *finished(make_plan(), 0, 0, 1)) == [expected]


def test_one_turn_after_an_interruption_is_no_matter() -> None:
    records = [
        make_record(case, repeat=repeat, run=run)
        for case, repeat, run in ((PLAIN, 0, 0), (SUFFIX, 0, 1), (PLAIN, 1, 1), (SUFFIX, 1, 1))
    ]
    assert notes(make_plan(PLAIN, SUFFIX, tasks=("chat",)), *records) == []
