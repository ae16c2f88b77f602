"""Headers of the kernels compiled by themselves, for one set of instructions or another."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from outrider.errors import CompilerError
from outrider.targets import kernels

_CPU_INFO = Path("/proc/cpuinfo")


def compiled_for(march: str, source: str, folder: Path) -> ctypes.CDLL:
    """Return C++ code as a library by itself, next to which others can be loaded."""
    try:
        compiler = kernels.compiler()
    except CompilerError as error:
        pytest.skip(str(error))
    file, library = folder / "shown.cpp", folder / f"{march}.so"
    file.write_text(source)
    includes = (Path(kernels.__file__).parent, Path(torch.__file__).parent / "include")
    options = ("-O1", f"-march={march}", "-ffp-contract=off", "-std=c++20", "-fPIC", "-shared")
    command = [compiler, *options, *(f"-I{one}" for one in includes), str(file)]
    subprocess.run([*command, "-o", str(library)], check=True)
    return ctypes.CDLL(os.fspath(library))


def require(feature: str) -> None:
    """Skip the test where the processor does not know some instructions."""
    knows = _CPU_INFO.exists() and feature in _CPU_INFO.read_text().split()
    if platform.machine() != "x86_64" or not knows:
        pytest.skip(f"this processor has no {feature}")


def product(library: ctypes.CDLL, x: Tensor, parts: tuple[Tensor, ...]) -> Tensor:
    """Return what the library's `product` makes of rows and a layer: weight, scale and offset."""
    weight, scale, offset = parts
    y = torch.empty(len(x), len(scale))
    pointer = ctypes.c_void_p
    library.product(
        *(pointer(x.data_ptr()), ctypes.c_int64(len(x)), ctypes.c_int64(x.shape[1])),
        *(pointer(one.data_ptr()) for one in (weight, scale, offset)),
        *(ctypes.c_int64(len(scale)), pointer(y.data_ptr())),
    )
    return y
