"""Our operators give a row the same bits whatever else is in the pass, on every processor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from outrider.targets.kernels import load_kernels


def linear(x: Tensor, weight: Tensor) -> Tensor:
    found: Tensor = torch.ops.outrider.linear(x, weight, None, None)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [48, 49, 50, 51])
@pytest.mark.parametrize("depth", [13, 64, 576])
def test_a_row_of_a_product_has_the_same_bits_among_others(
    depth: int, columns: int, dtype: torch.dtype
) -> None:
    load_kernels()
    x, weight = torch.randn(1, 12, depth).to(dtype), torch.randn(columns, depth).to(dtype)
    alone = torch.cat([linear(x[:, row : row + 1], weight) for row in range(12)], dim=1)
    for rows in (2, 3, 4, 5, 7, 12):
        assert torch.equal(linear(x[:, :rows], weight), alone[:, :rows])


@pytest.mark.parametrize(("heads", "shared"), [(6, 6), (6, 2), (9, 3), (8, 1)])
@pytest.mark.parametrize("width", [8, 12, 64])
@pytest.mark.parametrize("cached", [1, 40, 43, 200])
def test_a_row_of_attention_has_the_same_bits_among_others(
    heads: int, shared: int, width: int, cached: int
) -> None:
    load_kernels()
    keys, values = (torch.randn(2, shared, 256, width) for _ in range(2))
    query, key, value = (torch.randn(1, count, 4, width) for count in (heads, shared, shared))
    places = torch.tensor([[0, cached + row, cached + row + 1] for row in range(4)])
    branches = torch.zeros(4, 1, dtype=torch.long)

    def attention(rows: slice) -> Tensor:
        parts = [part[:, :, rows].contiguous() for part in (query, key, value)]
        rest = (keys, values, places[rows], branches[rows], 0.3, 0.0, 0)
        found: Tensor = torch.ops.outrider.attention(*parts, *rest)
        return found

    alone = torch.cat([attention(slice(row, row + 1)) for row in range(4)], dim=1)
    assert torch.equal(attention(slice(0, 4)), alone)
    assert torch.equal(attention(slice(0, 2)), alone[:, :2])
