"""Who is next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outrider.engine.queue import FairQueue


def filled(*pairs: tuple[str | None, int]) -> FairQueue[int]:
    queue: FairQueue[int] = FairQueue()
    for key, item in pairs:
        queue.push(key, item)
    return queue


def emptied(queue: FairQueue[int]) -> list[int]:
    found = []
    while queue:
        assert queue.peek() is not None
        found.append(queue.pop())
    assert queue.peek() is None
    return found


def test_without_keys_the_first_that_came_is_the_first_served() -> None:
    assert emptied(filled(*((None, item) for item in (3, 1, 2)))) == [3, 1, 2]


def test_keys_take_turns_and_keep_their_own_order() -> None:
    queue = filled(("a", 1), ("a", 2), ("a", 3), ("b", 11), ("b", 12), ("c", 21))
    assert emptied(queue) == [1, 11, 21, 2, 12, 3]


def test_a_key_that_comes_back_goes_behind_the_others() -> None:
    queue = filled(("a", 1), ("b", 11), ("b", 12))
    assert queue.pop() == 1
    queue.push("a", 2)
    assert emptied(queue) == [11, 2, 12]


def test_who_leaves_out_of_turn_leaves_the_rest_as_it_was() -> None:
    queue = filled(("a", 1), ("a", 2), ("b", 11))
    assert queue.remove("a", 1)
    assert not queue.remove("a", 1)
    assert not queue.remove("c", 1)
    assert queue.remove("b", 11)
    assert (list(queue), len(queue)) == ([2], 1)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), max_size=30))
def test_nobody_is_served_twice_before_another_is_served_once(
    pairs: list[tuple[str, int]],
) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for key, item in pairs:
        queue.push(key, (key, item))
    served: list[tuple[str, int]] = []
    while queue:
        waiting = {key for key, _ in queue}
        served.append(queue.pop())
        # Whoever waited all along has had at least as many turns as anyone, less one.
        turns = {key: sum(who == key for who, _ in served) for key in waiting}
        assert max(turns.values()) - min(turns.values()) <= 1
    for key in "abc":
        assert [pair for pair in served if pair[0] == key] == [p for p in pairs if p[0] == key]
