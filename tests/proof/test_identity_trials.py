"""Token identity: what is compared, and that nothing is left out."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.proof.base import Check
from outrider.proof.comparing import Comparer
from outrider.proof.identity import MODES, IdentityTrials
from outrider.proof.variants import chain_drafters, named_drafters, option_variants, variants
from support.heads import eagle_drafter
from support.proving import PROMPTS, do, loaded, total
from support.scripted import always
from support.tiny import shared_model


def trials(decoder: Any, *, tokens: int = 40, prompts: Any = PROMPTS) -> IdentityTrials:
    ways = variants(decoder, chain_drafters(decoder))
    return IdentityTrials(Comparer(decoder), prompts, ways, tokens=tokens, seed=0)


def test_every_variant_is_compared_however_few_the_tokens() -> None:
    decoder = loaded("suffix,ngram")
    ways = [variant.name for variant in variants(decoder, chain_drafters(decoder))]
    checks = list(do(trials(decoder).work()).values())
    assert [check.name for check in checks] == ways
    assert all(check.passed and check.counts["answers"] >= 2 for check in checks)
    assert 0 < total(checks, "batched") < total(checks, "answers")
    assert total(checks, "accepted") > 0


def test_each_drafter_drafts_at_several_lengths_and_under_each_rule() -> None:
    ways = [one.name for one in variants(loaded("suffix,ngram"), ())]
    for drafter in ("suffix", "ngram"):
        for length in ("up to 1", "up to 4", "up to 16", "auto"):
            assert f"{drafter}, {length}, match" in ways
    assert "suffix+ngram, auto, match" in ways
    assert {name.rsplit(", ", 1)[1] for name in ways} == {
        "match",
        "rejection",
        "block",
        "traversal",
    }


def test_more_tokens_take_more_cycles_with_other_questions() -> None:
    decoder = loaded("none")
    few = trials(decoder, tokens=1)
    answers = sum(2 if one.greedy_only else len(MODES) for one in few._variants)
    many = trials(decoder, tokens=answers * 8 * 2)
    groups: list[tuple[Any, ...]] = []

    class Noting(Comparer):
        def plainly(self, questions: Any) -> Any:
            groups.append(tuple(question.name for question in questions))
            return super().plainly(questions)

    many.length = 8
    many._comparer = Noting(decoder)
    checks = list(do(many.work()).values())
    assert total(checks, "tokens") >= answers * 8 * 2
    assert len(checks) > len(few._variants)
    assert len(set(groups)) == len(groups) > 2


def test_a_group_mixes_greedy_and_sampled_questions_and_modes_go_round() -> None:
    found = trials(loaded("none"))
    modes: dict[str, set[tuple[float, int]]] = {}
    for group in range(16):
        questions = found._questions(group)
        assert sum(question.params.is_greedy for question in questions) == 2
        for question in questions:
            name = question.name.split(",")[0]
            modes.setdefault(name, set()).add((question.params.temperature, question.params.top_k))
    assert all(len(seen) == 3 for seen in modes.values())


def test_rules_that_promise_equal_tokens_for_greedy_only_get_greedy_questions() -> None:
    asked: list[tuple[str, bool]] = []

    class Noting(Comparer):
        def compare(
            self, part: Any, name: str, decoder: Any, questions: Any, *rest: Any, **on: Any
        ) -> Any:
            asked.extend((name, question.params.is_greedy) for question in questions)
            return super().compare(part, name, decoder, questions, *rest, **on)

    decoder = loaded("ngram")
    work = trials(decoder)
    work._comparer = Noting(decoder)
    do(work.work())
    for name, is_greedy in asked:
        assert is_greedy or name.endswith("match"), name
    assert any(not is_greedy for _, is_greedy in asked)


def test_trials_in_which_nothing_can_be_compared_come_to_an_end() -> None:
    decoder = loaded("none")
    found = trials(decoder, tokens=10_000)
    found.length = 4

    class Failing(Comparer):
        def compare(self, part: Any, name: str, *rest: Any, **options: Any) -> Check:
            return Check(part, name, faults=("no",))

    found._comparer = Failing(decoder)
    checks = do(found.work())
    assert len(checks) == len(found._variants)


def test_a_drafter_of_trees_is_built_for_chains_where_a_spec_says_how() -> None:
    """And one of one's own that draws trees is left out of the rule for chains."""
    trees = eagle_drafter(shared_model())
    own = loaded([trees, always(3)])
    assert trees.drafts_trees
    assert [named.name for named in chain_drafters(own)] == ["scripted"]
    assert [named.name for named in named_drafters(own)] == ["eagle", "scripted"]
    assert [named.name for named in chain_drafters(loaded("ngram"))] == ["ngram"]


@pytest.mark.parametrize("drafter", ["none", "ngram"])
def test_options_are_tried_with_our_own_drafts_and_the_users(drafter: str) -> None:
    names = [variant.name for variant in option_variants(loaded(drafter))]
    assert names == ["told trees", *([] if drafter == "none" else [drafter])]
