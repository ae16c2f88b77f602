"""A schedule says for every batch how far to draft."""

from __future__ import annotations

import json
from itertools import pairwise

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


@given(st.lists(st.sampled_from([0, 1, 5]), min_size=1, max_size=8))
def test_merging_neighbours_changes_no_batch(lengths: list[int]) -> None:
    spans = [Span(2 * place + 1, 2 * place + 2, length) for place, length in enumerate(lengths)]
    found = merged(spans)
    for requests in range(1, 2 * len(lengths) + 3):
        assert span_for(found, requests).length == span_for(spans, requests).length
    assert all(a.length != b.length for a, b in pairwise(found))
