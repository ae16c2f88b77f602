"""Which prompts are decoded together, and who decodes them when."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from bench_fakes import NGRAM, PLAIN, SUFFIX, make_plan

from outrider.bench.base import Case
from outrider.bench.plan import unique_names


def test_every_case_decodes_every_group_once_a_repeat() -> None:
    plan = make_plan(repeats=3, tasks=("chat", "edit", "chat", "math"))
    turns = [
        turn
        for repeat in range(plan.repeats)
        for cases in plan.settings()
        for one in plan.rounds(cases, repeat)
        for turn in one.turns
    ]
    assert len({turn.key for turn in turns}) == len(turns) == 3 * 4 * 3
    counts = Counter((turn.case, turn.repeat) for turn in turns)
    assert set(counts.values()) == {4}


def test_who_comes_first_goes_round_from_group_to_group_and_repeat_to_repeat() -> None:
    plan = make_plan(tasks=("chat", "edit"))
    (cases,) = plan.settings()
    order = [
        [turn.case for turn in one.turns] for repeat in (0, 1) for one in plan.rounds(cases, repeat)
    ]
    assert order == [
        [PLAIN, SUFFIX, NGRAM],
        [SUFFIX, NGRAM, PLAIN],
        [NGRAM, PLAIN, SUFFIX],
        [PLAIN, SUFFIX, NGRAM],
    ]


def test_a_group_holds_prompts_of_one_task_and_is_always_full() -> None:
    plan = make_plan(tasks=("chat", "edit", "chat", "chat", "edit"))
    assert [group.names for group in plan.groups(1)] == [("a",), ("b",), ("c",), ("d",), ("e",)]
    assert [group.names for group in plan.groups(2)] == [("a", "c"), ("b", "e"), ("d", "a")]
    assert [group.names for group in plan.groups(4)] == [
        ("a", "c", "d", "a"),
        ("b", "e", "b", "e"),
    ]


def test_groups_alternate_between_tasks_and_have_seeds_that_never_overlap() -> None:
    plan = make_plan(tasks=("chat", "edit", "math") * 2)
    groups = plan.groups(1)
    assert [group.task for group in groups] == ["chat", "edit", "math"] * 2
    seeds = sorted(group.seed for group in groups)
    assert all(later - earlier >= 256 for earlier, later in pairwise(seeds))


def test_cases_of_one_temperature_and_batch_are_compared_with_each_other() -> None:
    warm, many = replace(PLAIN, temperature=1.0), replace(PLAIN, batch=4)
    plan = make_plan(PLAIN, warm, SUFFIX, many)
    assert plan.settings() == ((PLAIN, SUFFIX), (warm,), (many,))
    assert plan.tasks == ("chat", "edit")


def test_processes_are_told_by_mode_and_weights_and_held_in_shifts() -> None:
    peers = [
        Case(mode, "vllm", weights, batch=batch)
        for mode in ("none", "ngram")
        for weights in ("float32", "bfloat16")
        for batch in (1, 4)
    ]
    plan = make_plan(PLAIN, *peers, SUFFIX)
    assert len(plan.processes) == 4
    assert plan.shifts() == (plan,)
    first, second = (one.cases for one in replace(plan, most_processes=3).shifts())
    assert first == (PLAIN, *peers[:6], SUFFIX)
    assert second == tuple(peers[6:])


def test_names_are_told_apart() -> None:
    assert unique_names(["a", "b", "a", "a #2", "a"]) == ("a", "b", "a #2", "a #2 #2", "a #3")
