"""Prompt lookup: which match wins, what is copied, and at what cost."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.drafters.base import DraftRequest, DraftSampler
from outrider.drafters.ngram import NgramDrafter, NgramState
from outrider.errors import OptionError

TEXTS = st.lists(st.integers(0, 3), max_size=40)


def request(*prompt: int) -> DraftRequest:
    return DraftRequest(prompt, 1 << 20, cast("DraftSampler", None))


def draft(drafter: NgramDrafter, *prompt: int, budget: int = 10) -> list[int]:
    state = drafter.begin(request(*prompt))
    (tree,) = drafter.propose([state], [budget])
    assert tree.is_chain
    assert tree.q is None
    return list(tree.tokens)


def searched(text: list[int], shortest: int, longest: int, limit: int) -> list[int]:
    """The same rule by searching the whole text."""
    for n in range(min(longest, len(text) - 1), shortest - 1, -1):
        for end in range(len(text) - 1, n - 1, -1):
            if text[end - n : end] == text[-n:]:
                period = len(text) - end
                copied = text[end:] * (limit if period <= n else 1)
                return copied[:limit]
    return []


@pytest.mark.parametrize("shortest", [1, 2, 3])
def test_the_most_recent_match_of_the_longest_ngram_wins(shortest: int) -> None:
    """DRAFT-1"""
    drafter = NgramDrafter(min_ngram=shortest, max_ngram=3)
    assert draft(drafter, 1, 2, 3, 9, 5, 1, 2, 3, 8, 6, 1, 2, 3, budget=2) == [8, 6]


def test_a_longer_ngram_wins_over_a_more_recent_one() -> None:
    assert draft(NgramDrafter(min_ngram=1, max_ngram=3), 1, 2, 9, 3, 2, 8, 1, 2, budget=1) == [9]


def test_a_tail_shorter_than_the_budget_is_copied_and_no_ngram_matches_itself() -> None:
    """DRAFT-7"""
    assert draft(NgramDrafter(min_ngram=1), 4, 5, 6, 1, 4, 5) == [6, 1, 4, 5]
    assert draft(NgramDrafter(min_ngram=1), 4, 5, 6, 1) == []


def test_a_repeating_text_is_continued_with_its_period_for_the_whole_budget() -> None:
    """DRAFT-2"""
    assert draft(NgramDrafter(), *[7] * 48, budget=4) == [7] * 4
    assert draft(NgramDrafter(max_ngram=3), *[1, 2, 3] * 2, budget=7) == [1, 2, 3, 1, 2, 3, 1]


@given(TEXTS, TEXTS, st.integers(1, 3), st.integers(0, 3), st.integers(0, 8))
def test_the_index_finds_what_a_search_of_the_whole_text_finds(
    prompt: list[int], output: list[int], shortest: int, more: int, limit: int
) -> None:
    drafter = NgramDrafter(min_ngram=shortest, max_ngram=shortest + more)
    state = drafter.begin(request(*prompt))
    drafter.observe([state], [output])
    (tree,) = drafter.propose([state], [limit])
    text = prompt + output
    assert list(tree.tokens) == searched(text, shortest, shortest + more, limit)


@pytest.mark.parametrize(("length", "budget"), [(3, 10), (10, 3), (None, 3), (None, 0), (5, 0)])
def test_neither_the_length_nor_the_budget_is_exceeded(length: int | None, budget: int) -> None:
    """DRAFT-3"""
    drafted = draft(NgramDrafter(length=length), *[1, 2, 3, 4, 5, 6] * 3, budget=budget)
    assert len(drafted) == min(budget, length or budget)


def test_an_empty_prompt_and_a_lone_token_give_empty_trees() -> None:
    """BATCH-5"""
    assert draft(NgramDrafter()) == []
    assert draft(NgramDrafter(min_ngram=1), 7) == []


def test_requests_in_a_batch_do_not_see_each_other() -> None:
    """DRAFT-5, BATCH-4"""
    drafter = NgramDrafter(min_ngram=1)
    states = [drafter.begin(request(1, 2, 3)), drafter.begin(request(2))]
    drafter.observe(states, [[1], []])
    assert [list(t.tokens) for t in drafter.propose(states, [2, 2])] == [[2, 3], []]
    assert drafter.propose([], []) == []


class Counted(dict[tuple[int, ...], int]):
    """A dict that counts how often it is asked."""

    asked = 0

    def get(self, key: tuple[int, ...], default: int | None = None) -> int | None:  # type: ignore[override]
        type(self).asked += 1
        return super().get(key, default)


def test_a_token_costs_one_lookup_an_ngram_length_however_long_the_text() -> None:
    """LIMIT-8"""
    asked = []
    for n in (100, 10_000):
        state = NgramState(2, 4)
        state._ends = Counted()
        for i in range(n):
            state.append(i * i % 997)
        Counted.asked = 0
        for i in range(10):
            state.append(i)
            state.copy(15)
        asked.append(Counted.asked)
    assert asked == [30, 30]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_ngram": 0}, "min_ngram is 0, must be 1 to max_ngram (5)"),
        ({"min_ngram": 4, "max_ngram": 3}, "min_ngram is 4, must be 1 to max_ngram (3)"),
        ({"length": 0}, "length is 0, must be at least 1"),
    ],
)
def test_an_option_out_of_range_is_named_with_value_and_range(
    options: dict[str, int], message: str
) -> None:
    with pytest.raises(OptionError) as error:
        NgramDrafter(**options)
    assert str(error.value) == message


def test_chances_fall_along_a_draft_and_follow_what_copies_were_worth() -> None:
    drafter = NgramDrafter()
    state = drafter.begin(request(1, 2, 3, 4, 5, 6, 9, 1, 2))

    def first() -> float:
        (tree,) = drafter.propose([state], [4])
        assert tree.chances is not None
        assert list(tree.chances) == sorted(tree.chances, reverse=True)
        return tree.chances[0]

    before = first()
    drafter.observe([state], [[3, 4]])  # the copy goes on: a longer agreement
    assert first() > before
    for token in range(100, 140):
        drafter.observe([state], [[token, 1, 2]])  # and now it never does
    assert first() < before / 3
