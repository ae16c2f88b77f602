"""Suffix drafting: what is copied, when nothing is, and what requests share."""

from __future__ import annotations

import random
import sys
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.drafters.base import DraftRequest, DraftSampler
from outrider.drafters.suffix import SuffixDrafter, SuffixState
from outrider.drafters.survival import HORIZON
from outrider.errors import OptionError
from outrider.trees.layout import children, row_paths
from outrider.types import DraftTree

TEXTS = st.lists(st.integers(0, 4), max_size=40)
PASSAGE = list(range(100, 130))


def request(prompt: list[int]) -> DraftRequest:
    return DraftRequest(tuple(prompt), 1 << 20, cast("DraftSampler", None))


def eager(**options: Any) -> SuffixDrafter:
    """A drafter that drafts on the least hope."""
    return SuffixDrafter(min_probability=0.0, **options)


def tree_of(drafter: SuffixDrafter, state: SuffixState, budget: int = 15) -> DraftTree:
    (tree,) = drafter.propose([state], [budget])
    assert tree.q is None
    assert len(tree) <= budget
    return tree


def draft(drafter: SuffixDrafter, state: SuffixState, budget: int = 15) -> list[int]:
    """Draft where the text went on in one way only."""
    tree = tree_of(drafter, state, budget)
    assert tree.is_chain
    return list(tree.tokens)


def test_the_continuation_of_the_longest_repeated_suffix_is_copied() -> None:
    """DRAFT-7"""
    drafter = eager()
    state = drafter.begin(request([2, 3, 7, 8, 5, 1, 2, 3, 9, 6, 1, 2, 3]))
    assert draft(drafter, state, budget=2) == [9, 6]


def test_the_most_frequent_continuation_is_followed_and_the_latest_of_equals() -> None:
    """DRAFT-1"""
    drafter = eager()
    often = drafter.begin(request([5, 1, 2, 6, 1, 2, 7, 1, 3, 8, 1]))
    assert draft(drafter, often, budget=1) == [2]
    equal = drafter.begin(request([5, 1, 2, 7, 1, 3, 8, 1]))
    assert draft(drafter, equal, budget=1) == [3]


def test_a_repeating_text_is_continued_for_the_whole_budget() -> None:
    """DRAFT-2"""
    drafter = SuffixDrafter()
    for period in ([7], [1, 2], [1, 2, 3, 4, 5]):
        state = drafter.begin(request(period * 48))
        assert draft(drafter, state) == (period * 15)[:15]


def test_the_draft_grows_with_the_length_of_the_match() -> None:
    drafter = SuffixDrafter(min_probability=0.5)
    lengths = []
    for matched in (1, 2, 4, 8, 16):
        state = drafter.begin(request([*PASSAGE, *range(200, 230), 1, *PASSAGE[:matched]]))
        lengths.append(len(draft(drafter, state)))
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_chances_fall_along_a_draft_and_rise_with_the_length_of_the_match() -> None:
    drafter = eager()
    firsts = []
    for matched in (1, 2, 4, 8, 16):
        state = drafter.begin(request([*PASSAGE, 1, *PASSAGE[:matched]]))
        (tree,) = drafter.propose([state], [10])
        assert tree.chances is not None
        assert list(tree.chances) == sorted(tree.chances, reverse=True)
        assert 0 < tree.chances[-1] <= tree.chances[0] <= 1
        firsts.append(tree.chances[0])
    assert firsts == sorted(firsts)
    assert firsts[0] < firsts[-1]


def test_of_its_own_text_and_past_outputs_the_one_with_more_expected_tokens_is_copied() -> None:
    drafter = eager(max_shared_tokens=1000)
    first = drafter.begin(request([1]))
    drafter.observe([first], [[*PASSAGE, 5]])
    drafter.end(first)
    second = drafter.begin(request([*PASSAGE[8:10], 77]))
    drafter.observe([second], [PASSAGE[:10]])
    assert draft(drafter, second, budget=2) == PASSAGE[10:12]


@given(TEXTS, TEXTS, st.integers(0, 20))
def test_each_drafted_token_followed_the_one_before_somewhere_in_the_text(
    prompt: list[int], output: list[int], budget: int
) -> None:
    drafter = eager()
    state = drafter.begin(request(prompt))
    drafter.observe([state], [output])
    text = prompt + output
    tree = tree_of(drafter, state, budget)
    pairs = set(pairwise(text))
    assert len(tree) <= min(budget, HORIZON)
    for path in row_paths(tree):
        assert all(pair in pairs for pair in pairwise([*text[-1:], *path]))
    for below in children(tree):
        assert len({tree.tokens[node] for node in below}) == len(below)


@given(TEXTS, st.integers(1, 20))
def test_chances_fall_from_node_to_node_and_along_every_path(text: list[int], budget: int) -> None:
    tree = tree_of(eager(), eager().begin(request(text)), budget)
    assert list(tree.chances or ()) == sorted(tree.chances or (), reverse=True)


def test_where_the_text_went_on_in_two_ways_the_draft_branches() -> None:
    """Three times 1 2 5 6, once 1 2 7 8: each way has its share of what is expected."""
    text = [1, 2, 5, 6, 3, 1, 2, 7, 8, 3, 1, 2, 5, 6, 3, 1, 2, 5, 6, 4, 1, 2]
    drafter = eager()
    tree = tree_of(drafter, drafter.begin(request(text)), 5)
    assert row_paths(tree)[1:] == [(5,), (5, 6), (5, 6, 3), (7,), (5, 6, 3, 1)]
    assert tree.chances is not None
    assert tree.chances[3] == pytest.approx(tree.chances[0] / 3)
    follower = eager(branches=False)
    assert draft(follower, follower.begin(request(text)), 5) == [5, 6, 3, 1, 2]


def test_branching_follows_the_favourites_where_nothing_else_comes_near() -> None:
    text = [*PASSAGE, 1, *PASSAGE[:9], 2, *PASSAGE[:12]]
    drafter, follower = eager(), eager(branches=False)
    expected = draft(follower, follower.begin(request(text)), 6)
    assert draft(drafter, drafter.begin(request(text)), 6) == expected == PASSAGE[12:18]


@given(TEXTS, st.integers(1, 20))
def test_a_tree_is_expected_to_bring_at_least_what_a_chain_of_as_many_nodes_does(
    text: list[int], budget: int
) -> None:
    hopes = []
    for branches in (True, False):
        drafter = eager(branches=branches)
        tree = tree_of(drafter, drafter.begin(request(text)), budget)
        hopes.append(sum(tree.chances or ()))
    assert hopes[0] >= hopes[1] - 1e-9


def test_a_place_with_ever_more_continuations_is_worth_no_branch() -> None:
    """LIMIT-8: all of them together are likely, none by itself is."""
    drafter = eager()
    text = [token for i in range(100, 200) for token in (1, i)]
    state = drafter.begin(request([*text, 1]))
    assert len(tree_of(drafter, state, 1)) == 1
    assert tree_of(drafter, state, 15).is_chain


@given(TEXTS, st.lists(TEXTS, max_size=4))
def test_drafts_do_not_depend_on_whether_rounds_before_proposed(
    prompt: list[int], outputs: list[list[int]]
) -> None:
    """ADAPT-6"""
    drafter = SuffixDrafter()
    asked, idle = drafter.begin(request(prompt)), drafter.begin(request(prompt))
    for output in outputs:
        tree_of(drafter, asked)
        drafter.observe([asked, idle], [output, output])
    one, other = tree_of(drafter, asked), tree_of(drafter, idle)
    assert (one.tokens, one.parents, one.chances) == (other.tokens, other.parents, other.chances)


def test_copies_that_fail_are_given_up_though_nothing_in_the_text_speaks_against_them() -> None:
    """ADAPT-2"""
    drafter = SuffixDrafter()
    state = drafter.begin(
        request([token for i in range(0, 400, 10) for token in (i, i + 1, i + 2)])
    )
    hopes = []
    for i in range(0, 400, 10):  # each pair occurred once before, but goes on differently now
        drafter.observe([state], [[i, i + 1]])
        (tree,) = drafter.propose([state], [15])
        hopes.append(sum(tree.chances or ()))
        drafter.observe([state], [[i + 3]])
    assert hopes[0] > 1
    assert max(hopes[20:]) < 0.25


def test_drafting_stops_where_copies_fail_and_resumes_when_copying_would_have_paid() -> None:
    """ADAPT-2"""
    drafter = SuffixDrafter()
    source = random.Random(1)
    state = drafter.begin(request([]))
    for _ in range(400):  # pairs come again, what follows them does not
        drafter.observe([state], [[1, 2, source.randrange(10, 10_000)]])
    drafter.observe([state], [[1, 2]])
    assert draft(drafter, state) == []
    drafter.observe([state], [PASSAGE])
    drafter.observe([state], [PASSAGE[:20]])
    assert draft(drafter, state, budget=5) == PASSAGE[20:25]


def test_neither_the_length_nor_the_budget_is_exceeded() -> None:
    """DRAFT-3, BATCH-5"""
    for length, budget in ((3, 10), (10, 3), (5, 0)):
        drafter = eager(length=length)
        state = drafter.begin(request(PASSAGE * 2))
        assert len(draft(drafter, state, budget)) == min(length, budget)
    drafter = eager()
    assert draft(drafter, drafter.begin(request([]))) == []
    assert draft(drafter, drafter.begin(request([7]))) == []
    assert drafter.propose([], []) == []


@pytest.mark.parametrize("budget", [1, 2, 15])
def test_the_budget_decides_how_far_to_draft_but_not_whether(budget: int) -> None:
    drafter = SuffixDrafter()
    state = drafter.begin(request([*PASSAGE, 1, *PASSAGE[:8]]))
    assert draft(drafter, state, budget) == PASSAGE[8 : 8 + budget]


def test_without_a_store_nothing_outlives_the_request() -> None:
    """DRAFT-5"""
    drafter = SuffixDrafter()
    first = drafter.begin(request(PASSAGE))
    drafter.observe([first], [PASSAGE * 3])
    drafter.end(first)
    second = drafter.begin(request([1]))
    drafter.observe([second], [PASSAGE[:10]])
    assert draft(drafter, second) == []


def test_a_store_lets_a_request_copy_past_outputs_but_not_their_prompts() -> None:
    drafter = SuffixDrafter(max_shared_tokens=1000)
    first = drafter.begin(request([1, 2, 3, 4, 5, 6, 7, 8]))
    drafter.observe([first], [PASSAGE])
    drafter.end(first)
    second = drafter.begin(request([9]))
    drafter.observe([second], [PASSAGE[:10]])
    assert draft(drafter, second, budget=5) == PASSAGE[10:15]
    drafter.observe([second], [[1, 2, 3, 4, 5]])
    assert draft(drafter, second) == []


def test_a_draft_from_the_store_ends_where_the_past_output_ended() -> None:
    drafter = SuffixDrafter(max_shared_tokens=1000)
    for output in (PASSAGE, [7, 8, 9]):
        state = drafter.begin(request([1]))
        drafter.observe([state], [output])
        drafter.end(state)
    state = drafter.begin(request([1]))
    drafter.observe([state], [PASSAGE[:20]])
    assert draft(drafter, state) == PASSAGE[20:]


def test_a_place_in_the_store_is_found_again_after_other_outputs_came_in() -> None:
    drafter = eager(max_shared_tokens=1000)

    def finish(output: list[int]) -> None:
        state = drafter.begin(request([0]))
        drafter.observe([state], [output])
        drafter.end(state)

    finish([1, 2, 3, 4])
    waiting = drafter.begin(request([0]))
    drafter.observe([waiting], [[2, 3]])
    assert draft(drafter, waiting, budget=1) == [4]
    finish([5, 2, 3, 9])
    finish([6, 2, 3, 9])
    assert draft(drafter, waiting, budget=1) == [9]


def test_requests_go_on_while_others_fill_the_store_and_outputs_fall_out_of_it() -> None:
    drafter = SuffixDrafter(max_shared_tokens=100)
    long_lived = drafter.begin(request([1]))
    source = random.Random(2)
    for i in range(50):
        drafter.observe([long_lived], [[source.randrange(1000, 9000)]])
        draft(drafter, long_lived)
        other = drafter.begin(request([1]))
        drafter.observe([other], [[10 * i + j for j in range(30)]])
        drafter.end(other)
        assert len(long_lived.past) <= 2
    drafter.observe([long_lived], [[490, 491, 492, 493, 494, 495]])
    assert draft(drafter, long_lived, budget=3) == [496, 497, 498]
    fresh = drafter.begin(request([1]))
    drafter.observe([fresh], [[100, 101, 102, 103, 104, 105]])
    assert draft(drafter, fresh) == []


def num_calls(drafter: SuffixDrafter, text: list[int], start: int) -> int:
    """Calls made, into Python and C, to follow the text from `start` on, proposing each round."""
    state = drafter.begin(request(text[:start]))
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for token in text[start:]:
            drafter.propose([state], [15])
            drafter.observe([state], [[token]])
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("changed", [2, 20, 1000])
def test_a_round_costs_the_same_however_long_the_text(changed: int) -> None:
    """LIMIT-8"""
    source = random.Random(4)
    passage = [source.randrange(300) for _ in range(100)]
    text = [passage[i % 100] if i % changed else source.randrange(300) for i in range(20_000)]
    drafter = eager()
    calls = [num_calls(drafter, text[: start + 500], start) for start in (500, 5_000, 19_500)]
    assert max(calls) < 2 * min(calls)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length is 0, must be at least 1"),
        ({"min_probability": 2}, "min_probability is 2, must be 0 to 1"),
        ({"max_shared_tokens": 1}, "max_shared_tokens is 1, must be 0 or at least 2"),
        ({"max_shared_tokens": -5}, "max_shared_tokens is -5, must be 0 or at least 2"),
    ],
)
def test_an_option_out_of_range_is_named_with_value_and_range(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError) as error:
        SuffixDrafter(**options)
    assert str(error.value) == message
