"""Of two ways to draft the one is taken that brings more for the same passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from outrider.drafters.spec import Way
from outrider.drafters.way_choice import WayChoice

GREEDY, DRAWN = (True, False), (False, True)


def run(
    choice: WayChoice,
    rates: Mapping[Way, float],
    drafts: int,
    kind: object = GREEDY,
    **lengths: int,
) -> Counter[Way]:
    """Draft over and over with ways that have so many tokens in three right, 4 passes each."""
    taken: Counter[Way] = Counter()
    for _ in range(drafts):
        way = choice.choose(kind)
        taken[way] += 1
        drafted = lengths.get(way, 4)
        accepted = min(drafted, round(rates[way] * 4))
        choice.learn(
            kind, way, passes=4, drafted=drafted, accepted=accepted, refuted=accepted < drafted
        )
    return taken


def test_one_way_is_no_choice() -> None:
    assert set(run(WayChoice(["text"]), {"text": 0.0}, 40)) == {"text"}


def test_the_way_that_is_right_more_often_is_taken() -> None:
    for better, worse in (("tokens", "text"), ("text", "tokens")):
        taken = run(WayChoice(["tokens", "text"]), {better: 0.75, worse: 0.25}, 200)  # type: ignore
        assert taken[better] > 180  # type: ignore


def test_of_ways_that_are_right_as_often_the_one_that_says_more_a_pass_is_taken() -> None:
    taken = run(WayChoice(["tokens", "text"]), {"tokens": 1.0, "text": 1.0}, 200, tokens=2)
    assert taken["text"] > 180


def test_each_way_is_tried_first_and_the_worse_now_and_then() -> None:
    choice = WayChoice(["tokens", "text"])
    assert run(choice, {"tokens": 1.0, "text": 0.0}, 6) == {"tokens": 3, "text": 3}
    assert run(choice, {"tokens": 1.0, "text": 0.0}, 320)["text"] == 10


def test_when_things_change_so_does_the_choice() -> None:
    choice = WayChoice(["tokens", "text"])
    run(choice, {"tokens": 0.75, "text": 0.25}, 100)
    run(choice, {"tokens": 0.0, "text": 0.5}, 200)
    assert run(choice, {"tokens": 0.0, "text": 0.5}, 100)["text"] > 90


def test_kinds_of_requests_are_judged_apart() -> None:
    choice = WayChoice(["tokens", "text"])
    run(choice, {"tokens": 0.25, "text": 0.75}, 100, GREEDY)
    run(choice, {"tokens": 0.75, "text": 0.25}, 100, DRAWN)
    assert (choice.choose(GREEDY), choice.choose(DRAWN)) == ("text", "tokens")


def test_a_way_that_never_has_a_draft_is_not_taken() -> None:
    taken = run(WayChoice(["tokens", "text"]), {"tokens": 0.25, "text": 0.0}, 100, text=0)
    assert taken["tokens"] > 90
