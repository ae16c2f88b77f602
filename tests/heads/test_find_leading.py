"""The likeliest tokens found by our operator are those that torch finds."""

from __future__ import annotations

import math
from itertools import chain

import pytest
import torch
from torch import Tensor

from outrider.heads.kernels import find_leading
from outrider.sampling.draw import leaders
from outrider.targets.kernels import load_drafting_kernels

SHAPES = [(1, 1), (1, 7), (3, 64), (2, 1000), (5, 11_776), (4, 130)]
"""Rows and columns."""


@pytest.fixture(autouse=True)
def _kernels() -> None:
    load_drafting_kernels()


def keys_of(rows: int, width: int, values: int = 0) -> Tensor:
    """Return random keys: of so many values, or all of different ones."""
    generator = torch.Generator().manual_seed(rows * width)
    if values:
        return torch.randint(values, (rows, width), generator=generator).float()
    return torch.randn(rows, width, generator=generator) * 5


@pytest.mark.parametrize("count", [1, 2, 9, 64])
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_the_highest_are_found_with_their_chances(rows: int, width: int, count: int) -> None:
    keys, count = keys_of(rows, width), min(count, width)
    values, columns, chances = find_leading(keys, count)
    expected = keys.topk(count, dim=-1)
    assert torch.equal(values, expected.values) and torch.equal(columns, expected.indices)
    torch.testing.assert_close(chances, keys.softmax(-1).gather(-1, columns))


@pytest.mark.parametrize("values", [1, 2, 30])
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_of_equals_the_first_are_found(rows: int, width: int, values: int) -> None:
    keys, count = keys_of(rows, width, values), min(9, width)
    expected = keys.sort(dim=-1, descending=True, stable=True).indices[:, :count]
    assert torch.equal(find_leading(keys, count)[1], expected)


@pytest.mark.parametrize("place", [0, 63, 64, 129])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_leaders_by_it_are_the_leaders(bad: float, place: int) -> None:
    keys = keys_of(4, 130)
    keys[1, place], keys[2, 5:], keys[3] = bad, -math.inf, -math.inf
    for count in (1, 6, 130, 200):
        found, expected = leaders(keys, count, find=find_leading), leaders(keys, count)
        assert [len(row) for row in found] == [len(row) for row in expected]
        pairs = zip(chain(*found), chain(*expected), strict=True)
        for one, other in pairs:
            is_number = math.isfinite(other[0])
            assert one[0] == other[0] if is_number else not math.isfinite(one[0])
            assert one[1] == other[1] and (
                not is_number or math.isclose(one[2], other[2], rel_tol=1e-4)
            )


def test_keys_in_another_order_of_memory_are_read_right() -> None:
    keys = keys_of(130, 4).T
    assert torch.equal(find_leading(keys, 3)[1], keys.topk(3, dim=-1).indices)
