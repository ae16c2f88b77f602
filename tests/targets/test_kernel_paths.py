"""The fast ways through a product are the ones that are taken, where torch and processor have them.

A slower one gives the same numbers, so nothing else would tell.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from outrider.targets.kernels import MOST_FEW_ROWS, load_kernels

LIBRARY_PRODUCT = "mkldnn::_linear_pointwise"
CPU_INFO = Path("/proc/cpuinfo")


def linear(x: Tensor, weight: Tensor) -> Tensor:
    found: Tensor = torch.ops.outrider.linear(x, weight, None, None)
    return found


def products_of(rows: int) -> set[str]:
    """Return the operators that a float32 product of so many rows goes through."""
    load_kernels()
    x, weight = torch.randn(1, rows, 64), torch.randn(48, 64)
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as seen:
        linear(x, weight)
    return {event.key for event in seen.key_averages()}


@pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="this torch has no product of oneDNN's",
)
def test_prompts_are_multiplied_by_onednn_and_few_rows_are_not() -> None:
    assert LIBRARY_PRODUCT in products_of(MOST_FEW_ROWS + 1)
    assert LIBRARY_PRODUCT not in products_of(MOST_FEW_ROWS)


@pytest.mark.skipif(
    not CPU_INFO.exists() or "avx512_bf16" not in CPU_INFO.read_text(),
    reason="this processor multiplies no pairs",
)
@pytest.mark.parametrize("rows", [1, 8, MOST_FEW_ROWS])
def test_rows_in_bfloat16_are_multiplied_in_pairs(rows: int) -> None:
    """The instruction takes numbers below the normal ones for zeros; nothing else here does."""
    load_kernels()
    tiny, large = 2.0**-130, 2.0**10
    x = torch.full((1, rows, 64), tiny, dtype=torch.bfloat16)
    weight = torch.full((48, 64), large, dtype=torch.bfloat16)
    assert float((x.float() @ weight.float().T).min()) > 0
    assert not linear(x, weight).any()
