"""The product in whole numbers has the same bits by every instruction set it is written for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from outrider.targets.kernels.layers import WholeLinear
from support.instructions import compiled_for, product, require

PATHS = {"x86-64-v2": "sse4_2", "haswell": "avx2", "native": "avx512_vnni"}
"""What each way through the product is compiled for, and what a processor must know to take it."""
SHOWN = """
#include <cmath>
#include "whole.h"
extern "C" void product(const float* x, int64_t rows, int64_t depth, const uint8_t* weights,
                        const float* scales, const float* offsets, int64_t columns, float* y) {
  using namespace outrider;
  const PackedLayer layer{weights, scales, offsets, columns, (depth + kTogether - 1) / kTogether};
  multiply_whole(WholeRows(x, rows, depth), layer, nullptr, y);
}
"""


@pytest.mark.parametrize("march", PATHS)
@torch.inference_mode()
def test_a_row_has_the_bits_of_the_library_by_whatever_way_it_is_multiplied(
    march: str, tmp_path: Path
) -> None:
    require(PATHS[march])
    library = compiled_for(march, SHOWN, tmp_path)
    for seed, (rows, depth, columns) in enumerate([(1, 7, 16), (9, 48, 33), (3, 300, 100)]):
        torch.manual_seed(seed)
        layer = WholeLinear(nn.Linear(depth, columns))
        x = torch.randn(rows, depth)
        for kind in (x, x.bfloat16().float(), torch.full_like(x, -3e38), torch.zeros_like(x)):
            assert torch.equal(product(library, kind, layer.parts), layer(kind))


@torch.inference_mode()
def test_a_number_is_rounded_alike_wherever_it_stands_in_a_row() -> None:
    """A vector's worth at a time or one by one: also just below the half."""
    depth = 45
    one = nn.Linear(depth, 1, bias=False)
    one.weight.fill_(1)
    layer = WholeLinear(one)
    for below in (0.49999997, 63.499996, -0.49999997):
        found = []
        for place in range(1, depth):
            x = torch.zeros(1, depth)
            x[0, 0], x[0, place] = 127, below
            found.append(float(layer(x)))
        assert len(set(found)) == 1
