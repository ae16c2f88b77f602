"""Our operators give a row the same bits whatever else is in the pass, on every processor."""

from __future__ import annotations

from typing import TypeAlias

import pytest
import torch
from torch import Tensor

from outrider.targets.kernels import MOST_FEW_ROWS, load_kernels
from outrider.targets.packing import packed

Kind: TypeAlias = tuple[torch.dtype, torch.dtype]


def linear(x: Tensor, weight: Tensor) -> Tensor:
    one = torch.ones(len(weight)) if weight.dtype == torch.int8 else None
    found: Tensor = torch.ops.outrider.linear(x, stored(weight), one, None)
    return found


def stored(weight: Tensor) -> Tensor:
    """Return weights as the operator reads them."""
    return packed(weight) if weight.dtype == torch.int8 else weight


KINDS = [  # of rows and of weights
    (torch.float32, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.float32, torch.int8),
    (torch.bfloat16, torch.int8),
]


def operands(rows: int, columns: int, depth: int, kind: Kind) -> tuple[Tensor, Tensor]:
    """Return rows [1, R, depth] and weights [columns, depth]."""
    weight = torch.randn(columns, depth) * (30 if kind[1] == torch.int8 else 1)
    return torch.randn(1, rows, depth).to(kind[0]), weight.clamp(-127, 127).to(kind[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [48, 49, 50, 51])
@pytest.mark.parametrize("depth", [13, 64, 576])
def test_a_row_of_a_product_has_the_same_bits_among_others(
    depth: int, columns: int, kind: Kind
) -> None:
    load_kernels()
    x, weight = operands(MOST_FEW_ROWS, columns, depth, kind)
    alone = torch.cat([linear(x[:, [row]], weight) for row in range(MOST_FEW_ROWS)], dim=1)
    for rows in (*range(2, 15), 24, 25, MOST_FEW_ROWS):
        assert torch.equal(linear(x[:, :rows], weight), alone[:, :rows])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 6, 7, 9, 13, 40, MOST_FEW_ROWS, 200])
@pytest.mark.parametrize("columns", [7, 48])
@pytest.mark.parametrize("depth", [31, 96])
def test_a_product_is_that_of_exact_sums(depth: int, columns: int, rows: int, kind: Kind) -> None:
    load_kernels()
    x, weight = operands(rows, columns, depth, kind)
    exact = x.double() @ weight.double().T
    size = x.double().abs() @ weight.double().abs().T
    bound = 2**-18 * size
    if kind[1] == torch.int8:  # rows are whole numbers of sixteen bits up to their largest
        bound = x.double().abs().amax(-1, keepdim=True) / 32639 * weight.double().abs().sum(1)
    rounding = 2**-8 if x.dtype == torch.bfloat16 else 2**-20  # of the sum
    found = linear(x, weight).double()
    assert ((found - exact).abs() <= rounding * exact.abs() + bound).all()


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize("is_biased", [False, True])
def test_layers_with_one_input_have_the_bits_they_have_alone(
    is_biased: bool, is_scaled: bool, kind: Kind
) -> None:
    load_kernels()
    widths = (48, 7, 33)
    weights = [operands(1, columns, 64, kind)[1] for columns in widths]
    scales, biases = ([torch.rand(columns) for columns in widths] for _ in range(2))
    if not is_scaled and kind[1] == torch.int8:
        pytest.skip("packed weights have scales")
    weights = [stored(weight) for weight in weights]
    parts = [*weights, *(scales if is_scaled else []), *(biases if is_biased else [])]
    for rows in (1, 2, 7, 12, 30, 100):
        x, _ = operands(rows, 1, 64, kind)
        together = torch.ops.outrider.linears(x, parts, is_scaled, is_biased)
        for place, found in enumerate(together):
            scale = scales[place] if is_scaled else None
            bias = biases[place] if is_biased else None
            alone = torch.ops.outrider.linear(x, weights[place], scale, bias)
            assert torch.equal(found, alone)


@pytest.mark.parametrize("columns", [7, 48])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scale_and_bias_are_applied_in_float32_before_the_one_rounding(
    dtype: torch.dtype, columns: int
) -> None:
    load_kernels()
    x = torch.randint(-8, 8, (1, 20, 64)).to(dtype)  # small enough for exact sums
    weight = torch.randint(-127, 128, (columns, 64), dtype=torch.int8)
    scale, bias = torch.rand(2, columns).to(dtype)
    for rows in (1, 5, 8, 20):
        some = x[:, :rows]
        scaled = some.float() @ weight.float().T * scale.float()
        for plus, expected in ((bias, scaled + bias.float()), (None, scaled)):
            found = torch.ops.outrider.linear(some, packed(weight), scale, plus)
            assert torch.equal(found, expected.to(dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_have_no_products(kind: Kind) -> None:
    load_kernels()
    x, weight = operands(0, 48, 64, kind)
    assert linear(x, weight).shape == (1, 0, 48)


def test_what_does_not_fit_packed_weights_is_refused() -> None:
    load_kernels()
    x, weight = operands(2, 48, 64, KINDS[2])
    blocks = packed(weight)
    for rows, scale, reason in (
        (x, None, "with a scale each"),
        (x, torch.rand(49), "49 scales for 3 blocks"),
        (x[..., :60], torch.rand(48), "rows of 60 for weights of 64"),
    ):
        with pytest.raises(RuntimeError, match=reason):
            torch.ops.outrider.linear(rows, blocks, scale, None)
    with pytest.raises(RuntimeError, match="47 numbers for 48 columns"):
        torch.ops.outrider.linear(x, blocks, torch.rand(48), torch.rand(47))


@pytest.mark.parametrize("rows", [1, 4, 9])
@pytest.mark.parametrize("spoilt", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_holds_what_is_no_number_gives_none_and_spoils_no_other(
    spoilt: float, rows: int
) -> None:
    load_kernels()
    x, weight = operands(rows, 48, 150, KINDS[2])
    clean = linear(x, weight)
    x[0, -1, 149] = spoilt
    found = linear(x, weight)
    assert found[0, -1].isnan().all() and torch.equal(found[0, :-1], clean[0, :-1])


def test_one_large_value_costs_those_far_from_it_no_bits() -> None:
    """States of a model have values a thousand times as large as all others."""
    load_kernels()
    x, weight = operands(1, 48, 256, KINDS[2])
    x[0, 0, 0], weight[:, 0] = 1e6, 0
    exact = x.double() @ weight.double().T
    near, far = x.clone(), x.clone()
    near[..., 128:], far[..., :128] = 0, 0
    error = (linear(far, weight).double() - far.double() @ weight.double().T).abs().max()
    assert error < 1e-4 * exact.abs().max()
    assert (linear(near, weight).double() - near.double() @ weight.double().T).abs().max() > error


def test_rows_in_bfloat16_that_are_alike_in_size_are_multiplied_exactly() -> None:
    load_kernels()
    weight = operands(1, 48, 256, KINDS[3])[1]
    x = (torch.rand(1, 5, 256) + 2**-6).to(torch.bfloat16)
    exact = x.float().double() @ weight.double().T
    assert torch.equal(linear(x, weight), exact.to(torch.bfloat16))


def test_numbers_too_small_to_be_told_count_as_none() -> None:
    load_kernels()
    weight = operands(1, 48, 64, KINDS[2])[1]
    assert not linear(torch.full((1, 5, 64), 1e-40), weight).any()
