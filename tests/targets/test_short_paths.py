"""The product of rows of sixteen bits has the same bits by every instruction set it knows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from outrider.targets.int8 import quantize_rows
from outrider.targets.kernels import load_kernels
from outrider.targets.packing import packed
from support.instructions import compiled_for, product, require

PATHS = {
    ("x86-64-v2", "vectors"): "sse4_2",
    ("haswell", "vectors"): "avx2",
    ("skylake-avx512", "vectors"): "avx512bw",
    ("native", "vectors"): "avx512_vnni",
    ("native", "tiles"): "amx_int8",
}
"""What each way through the product is compiled for, and what a processor must know to take it."""
SHOWN = """
#include <cmath>
#include "short_tiles.h"
extern "C" void product(const float* x, int64_t rows, int64_t depth, const uint8_t* weights,
                        const float* scales, const float* offsets, int64_t columns, float* y) {{
  using namespace outrider;
  const PackedLayer layer{{weights, scales, offsets, columns, (depth + kTogether - 1) / kTogether}};
  multiply_short_by_{means}(ShortRows(x, rows, depth), {{{{layer, y}}}});
}}
extern "C" bool can_run() {{
  return {condition};
}}
"""
SIZES = [(1, 7, 16), (9, 48, 33), (3, 300, 100), (4, 64, 64), (13, 192, 200), (30, 576, 70)]
"""Rows, depth and columns."""


def layer_of(depth: int, columns: int) -> tuple[Tensor, ...]:
    weight, scale = quantize_rows(torch.randn(columns, depth))
    return packed(weight), scale, torch.randn(columns)


@pytest.mark.parametrize(("march", "means"), PATHS)
def test_a_row_has_the_bits_of_the_operator_by_whatever_way_it_is_multiplied(
    march: str, means: str, tmp_path: Path
) -> None:
    require(PATHS[march, means])
    load_kernels()
    is_granted = "outrider::has_tiles()" if means == "tiles" else "true"
    library = compiled_for(march, SHOWN.format(means=means, condition=is_granted), tmp_path)
    if not library.can_run():
        pytest.skip("the system does not let processes use the matrix registers")
    for seed, (rows, depth, columns) in enumerate(SIZES):
        if means == "tiles" and depth % 64:
            continue
        torch.manual_seed(seed)
        weight, scale, offset = layer_of(depth, columns)
        x = torch.randn(rows, depth)
        for kind in (x, x.bfloat16().float(), torch.full_like(x, -1e30), torch.zeros_like(x)):
            expected = torch.ops.outrider.linear(kind, weight, scale, offset)
            assert torch.equal(product(library, kind, (weight, scale, offset)), expected)
