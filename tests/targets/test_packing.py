"""Packed weights are the same weights, and take no second place in memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from outrider.heads.draft import output_rows
from outrider.targets import packing
from outrider.targets.int8 import Int8Linear, quantize_rows
from outrider.targets.kernels import load_kernels
from outrider.targets.kernels.layers import WholeLinear
from outrider.targets.packing import pack_in_place, packed, unpacked
from support.rounding import short

SIZES = [(16, 4), (1, 1), (48, 64), (33, 50), (100, 7), (320, 576)]
"""Rows and depth."""


def weights(rows: int, depth: int) -> Tensor:
    return torch.randint(-127, 128, (rows, depth), dtype=torch.int8)


def layer(rows: int, depth: int, dtype: torch.dtype = torch.float32) -> Int8Linear:
    torch.manual_seed(rows)
    bias = nn.Parameter(torch.randn(rows).to(dtype))
    return Int8Linear(*quantize_rows(torch.randn(rows, depth).to(dtype)), bias)


@pytest.mark.parametrize(("rows", "depth"), SIZES)
def test_what_is_packed_is_unpacked_again(rows: int, depth: int) -> None:
    weight = weights(rows, depth)
    assert torch.equal(unpacked(packed(weight), rows, depth), weight)


@pytest.mark.parametrize("at_a_time", [1, 100, 1 << 20])
@pytest.mark.parametrize(("rows", "depth"), SIZES)
def test_packing_in_place_packs(
    rows: int, depth: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_AT_A_TIME", at_a_time)
    weight = weights(rows, depth)
    expected, place = packed(weight), weight.data_ptr()
    found = pack_in_place(weight)
    assert torch.equal(found, expected)
    assert (found.data_ptr() == place) == (rows % 16 == 0 and depth % 4 == 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "depth"), SIZES)
@torch.no_grad()
def test_a_packed_layer_says_what_it_said_of_rows_of_sixteen_bits(
    rows: int, depth: int, dtype: torch.dtype
) -> None:
    load_kernels()
    one, x = layer(rows, depth, dtype), torch.randn(2, 5, depth).to(dtype)
    before, matrix = one(short(x).to(dtype)), one.matrix.clone()
    one.pack()
    one.pack()  # once is enough
    assert one.is_packed and torch.equal(one.matrix, matrix)
    torch.testing.assert_close(one(x), before)


def test_a_drafter_that_shares_packed_weights_never_unpacks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_kernels()
    one = layer(48, 64)
    one.pack()
    monkeypatch.setattr("outrider.targets.int8.unpacked", lambda *_: pytest.fail("unpacked"))
    assert WholeLinear(one).weight.data_ptr() == one.weight.data_ptr()


@torch.no_grad()
def test_drafters_read_packed_weights_as_they_read_others() -> None:
    load_kernels()
    plain, one, x = layer(48, 64), layer(48, 64), torch.randn(3, 64)
    one.pack()
    ids = torch.tensor([5, 40, 0])
    parts = [output_rows(each, ids, torch.float32) for each in (plain, one)]
    assert torch.equal(parts[0].weight, parts[1].weight)
    shared = WholeLinear(one)
    assert torch.equal(shared(x), WholeLinear(plain)(x))
    assert shared.weight.data_ptr() == one.weight.data_ptr()
