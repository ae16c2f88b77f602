"""The store of past outputs: bounded, first in first out."""

from __future__ import annotations

import random

import pytest

from outrider.drafters.automaton import END, START, SuffixAutomaton
from outrider.drafters.store import OutputStore


def holds(store: OutputStore, output: list[int]) -> bool:
    def is_in(automaton: SuffixAutomaton) -> bool:
        state = START
        for token in output:
            state = automaton.follow(state, token)
            if state < 0:
                return False
        return True

    return any(is_in(generation) for generation in store.generations)


def num_tokens(store: OutputStore) -> int:
    """Tokens held, the marks between outputs not counted."""
    return sum(
        len(each) - each.count(each.follow(START, END)) for each in store.generations if len(each)
    )


@pytest.mark.parametrize("bound", [2, 3, 10, 64])
def test_no_more_tokens_than_the_bound_are_ever_held(bound: int) -> None:
    store = OutputStore(bound)
    source = random.Random(3)
    for _ in range(200):
        store.add([source.randrange(50) for _ in range(source.randrange(2 * bound))])
        assert num_tokens(store) <= bound


def test_the_oldest_outputs_are_forgotten_first_and_the_newest_never() -> None:
    store = OutputStore(20)
    outputs = [[i, i + 1, i + 2] for i in range(0, 300, 10)]
    for i, output in enumerate(outputs):
        store.add(output)
        held = [holds(store, earlier) for earlier in outputs[: i + 1]]
        assert held == sorted(held)
        assert all(held[-3:])
        assert sum(held) <= 6


def test_of_an_output_longer_than_a_generation_the_end_is_kept() -> None:
    store = OutputStore(8)
    store.add(list(range(10)))
    assert holds(store, [6, 7, 8, 9])
    assert not holds(store, [5])


def test_no_string_runs_from_one_output_into_the_next() -> None:
    store = OutputStore(100)
    store.add([1, 2])
    store.add([3, 4])
    assert not holds(store, [2, 3])


def test_an_empty_output_leaves_the_store_as_it_was() -> None:
    store = OutputStore(4)
    store.add([1, 2])
    store.add([])
    assert holds(store, [1, 2])
