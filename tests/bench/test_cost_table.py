"""What passes cost between the points that were measured, and beyond them."""

from __future__ import annotations

import pytest

from outrider.bench.base import CostPoint
from outrider.bench.table import CostTable, tables


def point(
    batch: int, context: int, rows: int, seconds: float, *, computed: int | None = None
) -> CostPoint:
    return CostPoint("x", batch, context, rows, seconds, computed or batch * rows)


TABLE = CostTable(
    [
        *(point(1, 100, rows, seconds) for rows, seconds in ((1, 1.0), (2, 1.1), (4, 1.5))),
        *(point(1, 300, rows, seconds) for rows, seconds in ((1, 1.2), (4, 2.1))),
        *(point(4, 100, rows, seconds) for rows, seconds in ((1, 2.0), (2, 2.6))),
    ]
)


@pytest.mark.parametrize(
    ("sequences", "rows", "context", "expected"),
    [
        (1, 2, 100, 1.1),  # a point
        (1, 3, 100, 1.3),  # between rows
        (1, 8, 100, 2.3),  # beyond them
        (1, 1, 200, 1.1),  # between contexts
        (1, 4, 500, 1.5 + 1.2),  # beyond them: 0.6 for each 200 tokens
        (4, 1, 100, 2.0),
        (4, 1.5, 100, 2.3),  # a ragged batch
        (4, 1, 300, 2.0 + 4 * 0.2),  # the context of each sequence adds what one's does
        (2, 1, 100, 1.0 + 1.0 / 3),  # between numbers of sequences
        (7, 1, 100, 3.0),  # beyond them
    ],
)
def test_costs_lie_on_lines_through_the_points(
    sequences: int, rows: float, context: float, expected: float
) -> None:
    assert TABLE.seconds(sequences, rows, context) == pytest.approx(expected)


def test_of_passes_that_are_padded_to_the_same_rows_the_fastest_counts() -> None:
    padded = [point(1, 9, 3, 1.4, computed=4), point(1, 9, 4, 1.5), point(1, 9, 1, 1.0)]
    assert CostTable(padded).seconds(1, 4, 9) == 1.4


def test_beyond_the_points_more_rows_never_cost_less() -> None:
    falling = CostTable([point(1, 9, 1, 1.0), point(1, 9, 2, 0.9)])
    assert falling.seconds(1, 8, 9) == 0.9


def test_one_point_is_enough() -> None:
    assert CostTable([point(1, 9, 1, 1.0)]).seconds(3, 5, 900) == 1.0


def test_each_type_of_weights_has_a_table() -> None:
    other = CostPoint("int8", 1, 9, 1, 0.5)
    found = tables([point(1, 9, 1, 1.0), other])
    seconds = {name: table.seconds(1, 1, 9) for name, table in found.items()}
    assert seconds == {"x": 1.0, "int8": 0.5}
