"""The suffix automaton against a plain search of the text."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from outrider.drafters.automaton import START, SuffixAutomaton

TEXTS = st.lists(st.integers(0, 2), max_size=16)
LONG_TEXTS = st.lists(st.integers(0, 3), max_size=60)


def occurrences(text: list[int], part: list[int]) -> list[int]:
    """Ends of all occurrences of `part`."""
    n = len(part)
    return [end for end in range(n, len(text) + 1) if text[end - n : end] == part]


def repeated(text: list[int]) -> int:
    """Length of the longest suffix that occurred before."""
    return next(n for n in range(len(text), -1, -1) if not n or len(at(text, n)) > 1)


def at(text: list[int], n: int) -> list[int]:
    return occurrences(text, text[len(text) - n :])


def find(automaton: SuffixAutomaton, part: list[int]) -> int:
    state = START
    for token in part:
        state = automaton.follow(state, token)
        if state < 0:
            break
    return state


def favourite(text: list[int], part: list[int]) -> int:
    """The token that followed `part` most often, the latest of equals; -1 if none did."""
    followers = [text[end] for end in occurrences(text, part) if end < len(text)]
    last = {token: i for i, token in enumerate(followers)}
    return max(last, key=lambda t: (followers.count(t), last[t]), default=-1)


@given(LONG_TEXTS)
def test_the_longest_suffix_that_occurred_before_is_known_after_every_token(
    text: list[int],
) -> None:
    automaton = SuffixAutomaton()
    for i, token in enumerate(text, 1):
        automaton.append(token)
        state, length = automaton.repeated_suffix()
        assert length == repeated(text[:i])
        assert state == find(automaton, text[i - length : i])


@given(TEXTS, st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_a_string_is_found_exactly_if_it_occurs(text: list[int], part: list[int]) -> None:
    assert (find(SuffixAutomaton(text), part) >= 0) == bool(occurrences(text, part))


@given(TEXTS)
def test_counts_and_favourites_are_those_of_a_plain_search(text: list[int]) -> None:
    automaton = SuffixAutomaton(text)
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            part = text[start:end]
            state = find(automaton, part)
            assert automaton.count(state) == len(occurrences(text, part))
            assert automaton.favourite(state)[0] == favourite(text, part)
            followers = {text[e] for e in occurrences(text, part) if e < len(text)}
            assert automaton.is_branching(state) == (len(followers) > 1)


@given(TEXTS, LONG_TEXTS)
def test_a_foreign_text_is_matched_by_its_longest_suffix_that_occurs(
    text: list[int], foreign: list[int]
) -> None:
    automaton = SuffixAutomaton(text)
    state, matched = START, 0
    for i, token in enumerate(foreign, 1):
        state, matched = automaton.advance(state, matched, token)
        suffixes = (foreign[i - n : i] for n in range(i, 0, -1))
        assert matched == next((len(s) for s in suffixes if occurrences(text, s)), 0)


@given(TEXTS, TEXTS, TEXTS)
def test_a_match_stays_right_while_the_text_it_lies_in_grows(
    text: list[int], foreign: list[int], more: list[int]
) -> None:
    automaton = SuffixAutomaton(text)
    state, matched = START, 0
    for token in foreign:
        state, matched = automaton.advance(state, matched, token)
    for token in more:
        automaton.append(token)
        settled = automaton.settle(state, matched)
        assert settled == find(automaton, foreign[len(foreign) - matched :])


def test_the_number_of_states_is_at_most_twice_the_number_of_tokens() -> None:
    for text in ([7] * 500, [0] + [1] * 500, list(range(500)), [0, 1, 1] * 200):
        automaton = SuffixAutomaton(text)
        assert len(automaton) == len(text)
        assert automaton.num_states <= 2 * len(text)


def test_a_text_costs_less_than_three_hundred_bytes_a_token() -> None:
    text = [(i * i * 7919 + i // 3) % 5003 for i in range(5000)]
    tracemalloc.start()
    automaton = SuffixAutomaton(text)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(automaton) == 5000
    assert held < 300 * 5000


def test_a_token_changes_a_bounded_number_of_counts_in_the_most_repetitive_text() -> None:
    """LIMIT-8"""
    automaton = SuffixAutomaton([7] * 1000)
    before = list(automaton._count)
    automaton.append(7)
    assert sum(old != new for old, new in zip(before, automaton._count, strict=False)) <= 16
    assert automaton.favourite(START)[0] == 7


@given(TEXTS)
def test_the_other_continuations_have_the_shares_that_a_plain_search_finds(text: list[int]) -> None:
    automaton = SuffixAutomaton(text)
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            part = text[start:end]
            state = find(automaton, part)
            followers = [text[e] for e in occurrences(text, part) if e < len(text)]
            rest = set(followers) - {favourite(text, part)}
            found = {token: share for token, _, share in automaton.others(state)}
            total = len(occurrences(text, part))
            assert found == {token: followers.count(token) / total for token in rest}
            for token, following, _ in automaton.others(state):
                assert following == automaton.follow(state, token)


def test_a_state_with_many_other_continuations_names_none_of_them() -> None:
    automaton = SuffixAutomaton([token for i in range(2, 11) for token in (1, i)])
    assert len(automaton.others(find(automaton, [1]))) == 8
    automaton = SuffixAutomaton([token for i in range(2, 12) for token in (1, i)])
    assert automaton.others(find(automaton, [1])) == []
