"""Copying a predicted output, before and after the output leaves it."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.drafters.base import DraftRequest, DraftSampler
from outrider.drafters.prediction import PredictionDrafter
from outrider.errors import OptionError

TEXTS = st.lists(st.integers(0, 3), max_size=30)


def request(prediction: list[int] | None) -> DraftRequest:
    ids = None if prediction is None else tuple(prediction)
    return DraftRequest((1,), 1 << 20, cast("DraftSampler", None), ids)


def draft(prediction: list[int] | None, output: list[int], budget: int = 15) -> list[int]:
    drafter = PredictionDrafter(min_probability=0.0)
    state = drafter.begin(request(prediction))
    for token in output:
        drafter.observe([state], [[token]])
    (tree,) = drafter.propose([state], [budget])
    assert tree.is_chain
    assert tree.q is None
    return list(tree.tokens)


def num_rounds(prediction: list[int], output: list[int]) -> int:
    """Passes needed to emit the output when right drafts are accepted."""
    drafter = PredictionDrafter()
    state = drafter.begin(request(prediction))
    rounds = done = 0
    while done < len(output):
        tokens = drafter.propose([state], [min(15, len(output) - done - 1)])[0].tokens
        right = 0
        while right < len(tokens) and tokens[right] == output[done + right]:
            right += 1
        drafter.observe([state], [output[done : done + right + 1]])
        done += right + 1
        rounds += 1
    return rounds


TEXT = list(range(100, 200))


def test_the_prediction_is_drafted_from_its_first_token_on() -> None:
    assert draft(TEXT, [], budget=3) == [100, 101, 102]
    assert draft(TEXT, TEXT[:50], budget=3) == [150, 151, 152]


def test_a_right_prediction_is_emitted_at_one_pass_a_full_draft() -> None:
    assert num_rounds(TEXT, TEXT) == 7  # 100 tokens, 16 a pass


@pytest.mark.parametrize(
    ("edited", "what"),
    [
        ([*TEXT[:40], 7, *TEXT[41:]], "replaced"),
        ([*TEXT[:40], 7, 8, 9, *TEXT[40:]], "inserted"),
        ([*TEXT[:40], *TEXT[50:]], "left out"),
        ([*TEXT[:40], 7, 8, *TEXT[43:]], "rewritten"),
        ([7, 8, 9, *TEXT], "put in front"),
        ([*TEXT[60:], *TEXT[:60]], "moved"),
    ],
)
def test_drafting_resumes_after_an_edit(edited: list[int], what: str) -> None:
    assert num_rounds(TEXT, edited) <= 14, what


def test_of_equal_places_the_nearest_ahead_is_taken() -> None:
    block = [1, 2, 3]
    text = [*block, 10, *block, 20, *block, 30, *block, 40]
    assert draft(text, [*text[:6], 9, 1, 2, 3], budget=1) == [30]
    assert draft(text, [*text[:14], 9, 2, 3], budget=1) == [40]


def test_a_longer_agreement_wins_over_a_nearer_place() -> None:
    text = [1, 2, 3, 10, 4, 6, 5, 20, 4, 5, 40]
    assert draft(text, [1, 2, 3, 4, 5], budget=1) == [40]


def test_a_single_token_found_far_ahead_does_not_give_up_the_place_before() -> None:
    text = [1, 2, 3, 10, 11, 50, 7, 60, 10, 12]
    assert draft(text, [1, 2, 3, 7, 99, 10], budget=1) == [11]


def test_a_single_strange_token_is_taken_to_replace_the_predicted_one() -> None:
    assert draft(TEXT, [100, 101, 7], budget=2)[:2] == [103, 104]


def test_nothing_is_drafted_without_a_prediction_or_past_its_end() -> None:
    assert draft(None, [1, 2]) == []
    assert draft([], [1, 2]) == []
    assert draft([1, 2, 3], [1, 2, 3]) == []
    assert draft([1, 2, 3], [1, 2, 3, 4, 5]) == []


@given(TEXTS, TEXTS, st.integers(0, 6))
def test_drafts_lie_in_the_prediction_and_within_the_budget(
    prediction: list[int], output: list[int], budget: int
) -> None:
    drafted = draft(prediction, output, budget)
    assert len(drafted) <= budget
    assert any(
        prediction[start : start + len(drafted)] == drafted for start in range(len(prediction) + 1)
    )


def test_an_unrelated_output_soon_stops_the_drafting_and_copying_starts_it_again() -> None:
    """ADAPT-2"""
    drafter = PredictionDrafter()
    state = drafter.begin(request(TEXT))
    for token in range(1000, 1020):
        drafter.observe([state], [[token]])
        assert len(drafter.propose([state], [8])[0]) == 0
    drafter.observe([state], [TEXT[30:40]])
    assert drafter.propose([state], [2])[0].tokens == (140, 141)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length is 0, must be at least 1"),
        ({"min_probability": 2}, "min_probability is 2, must be 0 to 1"),
    ],
)
def test_an_option_out_of_range_is_named_with_value_and_range(
    options: dict[str, int], message: str
) -> None:
    with pytest.raises(OptionError) as error:
        PredictionDrafter(**options)
    assert str(error.value) == message


def test_chances_fall_along_a_draft_and_rise_as_the_output_follows_the_prediction() -> None:
    drafter = PredictionDrafter()
    state = drafter.begin(request(TEXT))
    hopes = []
    for place in range(0, 60, 12):
        (tree,) = drafter.propose([state], [10])
        assert tree.chances is not None
        assert list(tree.chances) == sorted(tree.chances, reverse=True)
        assert 0 < tree.chances[-1] <= tree.chances[0] <= 1
        hopes.append(sum(tree.chances))
        drafter.observe([state], [TEXT[place : place + 12]])
    assert hopes == sorted(hopes)
    assert hopes[0] < hopes[-1]
