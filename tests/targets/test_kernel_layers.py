"""Linear layers by our own operator against the product they stand for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from outrider.targets.int8 import Int8Linear, quantize_rows
from outrider.targets.kernels.layers import KernelLinear, WholeLinear, use_kernels
from support.rounding import short


@pytest.mark.parametrize("rows", [1, 7, 100])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_gives_the_product_with_its_int8_weights(
    rows: int, bias: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(rows)
    layer = nn.Linear(48, 33, bias=bias).to(dtype)
    weight, scale = quantize_rows(layer.weight.detach().float())
    x = torch.randn(rows, 48).to(dtype)
    with torch.inference_mode():
        expected = nn.functional.linear(short(x).float(), weight.float() * scale[:, None], None)
        expected = expected if layer.bias is None else expected + layer.bias.float()
        found = KernelLinear(layer)(x)
    assert found.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(found.float(), expected, atol=tolerance, rtol=tolerance)


def test_every_linear_layer_of_a_module_is_replaced_and_nothing_else() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 4)))
    x = torch.randn(3, 8)
    before = module(x)
    use_kernels(module)
    kinds = [type(one).__name__ for one in module.modules()]
    assert kinds == ["Sequential", "KernelLinear", "Sequential", "LayerNorm", "KernelLinear"]
    with torch.inference_mode():
        torch.testing.assert_close(module(x), before, atol=0.05, rtol=0.05)


def rounded(x: Tensor) -> Tensor:
    """Return rows [R, in] as whole numbers of eight bits times a scale each, in float64."""
    scale = x.double().abs().amax(-1, keepdim=True) / 127
    return torch.where(scale > 0, (x.double() / scale).round() * scale, 0.0)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 9, 40])
@pytest.mark.parametrize(("depth", "columns"), [(48, 33), (7, 16), (64, 5), (33, 100)])
def test_a_layer_in_whole_numbers_gives_the_product_of_rounded_rows(
    rows: int, depth: int, columns: int
) -> None:
    torch.manual_seed(rows)
    layer = nn.Linear(depth, columns)
    weight, scale = quantize_rows(layer.weight.detach())
    x = torch.randn(rows, depth)
    exact = rounded(x) @ (weight.double() * scale[:, None]).T + layer.bias.double()
    with torch.inference_mode():
        found = WholeLinear(layer)(x)
    torch.testing.assert_close(found.double(), exact, atol=1e-5, rtol=1e-5)


def test_a_row_in_whole_numbers_has_the_same_bits_among_others() -> None:
    torch.manual_seed(0)
    layer = WholeLinear(nn.Linear(48, 40))
    x = torch.randn(19, 48)
    with torch.inference_mode():
        alone = torch.cat([layer(row[None]) for row in x])
        for rows in range(1, 20):
            assert torch.equal(layer(x[:rows]), alone[:rows])


def test_layers_that_read_the_same_rows_stand_side_by_side() -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(12, 7), nn.Linear(12, 20, bias=False)
    narrow = Int8Linear(*quantize_rows(second.weight.detach()), None)
    x = torch.randn(4, 12, dtype=torch.bfloat16)
    with torch.inference_mode():
        both = WholeLinear(first, narrow)(x)
        assert both.dtype == x.dtype
        assert torch.equal(both, torch.cat([WholeLinear(first)(x), WholeLinear(second)(x)], -1))


def test_a_row_of_nothing_gives_the_offset() -> None:
    layer = nn.Linear(12, 7)
    with torch.inference_mode():
        assert torch.equal(WholeLinear(layer)(torch.zeros(2, 12)), layer.bias.expand(2, -1))


def test_a_product_of_rows_that_do_not_fit_is_refused() -> None:
    layer = WholeLinear(nn.Linear(12, 7))
    with pytest.raises(RuntimeError, match="a weight for each input, not 20"):
        layer(torch.zeros(1, 20))
