"""A schedule says for every batch how far to draft."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.scale.schedule import Span, from_values, longest, merged, span_for, to_values

SCHEDULE = (Span(1, 1, 7, 0.05), Span(2, 4, 3, 0.25), Span(5, 8, 0, 1.0))


def test_a_batch_falls_into_its_span_and_a_larger_one_into_the_last() -> None:
    found = [span_for(SCHEDULE, requests).length for requests in (1, 2, 4, 5, 8, 9, 500)]
    assert found == [7, 3, 3, 0, 0, 0, 0]
    assert longest(SCHEDULE) == 7


def test_a_schedule_is_read_as_it_was_written() -> None:
    assert from_values(json.loads(json.dumps(to_values(SCHEDULE)))) == SCHEDULE


def test_a_schedule_by_load_is_kept_to_at_every_border() -> None:
    """ADAPT-5: behind the last span the last length holds."""
    schedule = from_values([[1, 4, 4, 0.0], [5, 8, 2, 0.0], [9, 32, 1, 0.0]])
    lengths = [span_for(schedule, requests).length for requests in (1, 4, 5, 8, 9, 32, 33)]
    assert lengths == [4, 4, 2, 2, 1, 1, 1]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([[2, 4, 4, 0]], r"has \[2, 4, 4\]: expected a span that begins with 1 "),
        ([[1, 4, 4, 0], [6, 8, 2, 0]], r"has \[6, 8, 2\]: .* begins with 5 "),
        ([[1, 4, 4, 0], [4, 8, 2, 0]], r"has \[4, 8, 2\]: .* begins with 5 "),
        ([[1, 0, 4, 0]], r"has \[1, 0, 4\]"),
        ([[1, 4, -1, 0]], "at least 0"),
        ([], "is empty"),
    ],
)
def test_a_schedule_with_a_gap_or_an_overlap_is_an_error(values: object, problem: str) -> None:
    """ADAPT-5: a batch in no span, or in two, would be drafted for by accident."""
    with pytest.raises(ValueError, match=problem):
        from_values(values)


@given(st.lists(st.sampled_from([0, 1, 5]), min_size=1, max_size=8))
def test_merging_neighbours_changes_no_batch(lengths: list[int]) -> None:
    spans = [Span(2 * place + 1, 2 * place + 2, length) for place, length in enumerate(lengths)]
    found = merged(spans)
    for requests in range(1, 2 * len(lengths) + 3):
        assert span_for(found, requests).length == span_for(spans, requests).length
    assert all(a.length != b.length for a, b in pairwise(found))
