"""Linear layers by our own operator against the product they stand for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from outrider.targets.int8 import quantize_rows
from outrider.targets.kernels.layers import KernelLinear, use_kernels


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
        expected = nn.functional.linear(x.float(), weight.float() * scale[:, None], None)
        expected = expected if layer.bias is None else expected + layer.bias.float()
        found = KernelLinear(layer)(x)
    assert found.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
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
