"""The product in whole numbers has the same bits by every instruction set it is written for."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from outrider.errors import CompilerError
from outrider.targets import kernels
from outrider.targets.kernels.layers import WholeLinear

CPU_INFO = Path("/proc/cpuinfo")
PATHS = {"x86-64-v2": "sse4_2", "haswell": "avx2", "native": "avx512_vnni"}
"""What each way through the product is compiled for, and what a processor must know to take it."""
SHOWN = """
#include <cmath>
#include "whole.h"
extern "C" void product(const float* x, int64_t rows, int64_t depth, const uint8_t* weights,
                        const float* scales, const float* offsets, int64_t columns, float* y) {
  using namespace outrider;
  const WholeLayer layer{weights, scales, offsets, columns, (depth + kTogether - 1) / kTogether};
  multiply_whole(WholeRows(x, rows, depth), layer, nullptr, y);
}
"""


def compiled_for(march: str, folder: Path) -> ctypes.CDLL:
    """Return the product as a library by itself, next to which others can be loaded."""
    try:
        compiler = kernels.compiler()
    except CompilerError as error:
        pytest.skip(str(error))
    source, library = folder / "shown.cpp", folder / f"{march}.so"
    source.write_text(SHOWN)
    includes = (Path(kernels.__file__).parent, Path(torch.__file__).parent / "include")
    options = ("-O1", f"-march={march}", "-ffp-contract=off", "-std=c++20", "-fPIC", "-shared")
    command = [compiler, *options, *(f"-I{one}" for one in includes), str(source)]
    subprocess.run([*command, "-o", str(library)], check=True)
    return ctypes.CDLL(os.fspath(library))


def product(library: ctypes.CDLL, x: Tensor, layer: WholeLinear) -> Tensor:
    weight, scale, offset = layer.parts
    y = torch.empty(len(x), len(scale))
    pointer = ctypes.c_void_p
    library.product(
        *(pointer(x.data_ptr()), ctypes.c_int64(len(x)), ctypes.c_int64(x.shape[1])),
        *(pointer(one.data_ptr()) for one in (weight, scale, offset)),
        *(ctypes.c_int64(len(scale)), pointer(y.data_ptr())),
    )
    return y


def can_take(march: str) -> bool:
    return (
        platform.machine() == "x86_64"
        and CPU_INFO.exists()
        and PATHS[march] in (CPU_INFO.read_text())
    )


@pytest.mark.parametrize("march", PATHS)
@torch.inference_mode()
def test_a_row_has_the_bits_of_the_library_by_whatever_way_it_is_multiplied(
    march: str, tmp_path: Path
) -> None:
    if not can_take(march):
        pytest.skip(f"this processor has no {PATHS[march]}")
    library = compiled_for(march, tmp_path)
    for seed, (rows, depth, columns) in enumerate([(1, 7, 16), (9, 48, 33), (3, 300, 100)]):
        torch.manual_seed(seed)
        layer = WholeLinear(nn.Linear(depth, columns))
        x = torch.randn(rows, depth)
        for kind in (x, x.bfloat16().float(), torch.full_like(x, -3e38), torch.zeros_like(x)):
            assert torch.equal(product(library, kind, layer), layer(kind))


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
