"""Operators of our own for the CPU, built once a machine with its C++ compiler.

`outrider::linear` and `outrider::attention` read weights and keys as they lie, each once a pass,
and give a row the same bits whatever else is in the pass. A library of its own has the operators
of drafters, which round as they like. Sources lie beside this file.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from outrider.errors import CompilerError
from outrider.targets.diskcache import cached_folder

_FOLDER = Path(__file__).parent
_SOURCES = (
    *("kernels.cpp", "attention.h", "blocks.h", "product.h"),
    *("short_tiles.h", "short_rows.h", "packed.h", "lanes.h"),
)
# Without -ffp-contract=off a compiler fuses some products with sums and others not, as it likes.
_OPTIONS = (
    *("-O3", "-march=native", "-ffp-contract=off", "-std=c++20", "-fopenmp", "-fPIC", "-shared"),
)
_DRAFTING_SOURCES = (
    *("drafting.cpp", "leading.h", "whole.h", "packed.h"),
    *("attention.h", "product.h", "lanes.h"),
)
_LIBRARY = "kernels.so"
MOST_FEW_ROWS = 63
"""Rows up to which `outrider::linear` uses its own product, whose rows keep their bits."""


@functools.cache
def machine_digest() -> str:
    """Return what the kernels depend on, as a digest: sources, torch, compiler, processor.

    Raises CompilerError where there is no compiler that works.
    """
    return _digest(_SOURCES)


@functools.cache
def load_kernels() -> None:
    """Make `torch.ops.outrider.linear` and the others available; builds them the first time.

    Raises CompilerError where they cannot be built.
    """
    _load("kernels", _SOURCES[0], machine_digest())
    torch.library.register_fake("outrider::linear", _linear_shape)
    torch.library.register_fake("outrider::linears", _linears_shapes)
    torch.library.register_fake("outrider::attention", _attention_shape)


@functools.cache
def load_drafting_kernels() -> None:
    """Make `torch.ops.outrider.draft_layer` and the others of drafters available likewise."""
    _load("drafting", _DRAFTING_SOURCES[0], _digest(_DRAFTING_SOURCES))


def compiler() -> str:
    """Return the C++ compiler: $CXX, else g++ or clang++; raises CompilerError without one."""
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise CompilerError("no C++ compiler was found (g++ or clang++, or set CXX)")


def _digest(sources: tuple[str, ...]) -> str:
    digest = hashlib.sha256(torch.__version__.encode())
    digest.update(" ".join(_OPTIONS).encode())
    for name in sources:
        digest.update((_FOLDER / name).read_bytes())
    # The macros name the compiler's release and every instruction set it may use here.
    command = [compiler(), "-march=native", "-dM", "-E", "-x", "c++", os.devnull]
    digest.update(_run(command))
    return digest.hexdigest()


def _load(name: str, source: str, digest: str) -> None:
    entry = cached_folder(f"{name}-{digest[:16]}", functools.partial(_build, source))
    load: Callable[[str], None] = torch.ops.load_library
    try:
        load(str(entry / _LIBRARY))
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise CompilerError(f"the kernels in {entry} do not load: {reason}") from error


def _build(source: str, folder: Path) -> None:
    installed = Path(torch.__file__).parent
    include = installed / "include"
    command = [compiler(), *_OPTIONS, f"-I{include}", f"-I{include / 'torch/csrc/api/include'}"]
    # torch brings its own OpenMP, already loaded: a second one would start threads of its own.
    command += [str(_FOLDER / source), "-o", str(folder / _LIBRARY)]
    command += [f"-L{installed / 'lib'}", "-lc10", "-ltorch_cpu"]
    _run(command)


def _run(command: list[str]) -> bytes:
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except OSError as error:
        raise CompilerError(f"{command[0]} does not run: {error}") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").splitlines()
        reason = next((line for line in lines if "error" in line), "") or f"exit {error.returncode}"
        raise CompilerError(f"{command[0]} failed: {reason.strip()[:300]}") from error


def _linear_shape(
    x: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None, kind: str = ""
) -> Tensor:
    return x.new_empty(*x.shape[:-1], _columns(weight, scale))


def _columns(weight: Tensor, scale: Tensor | None) -> int:
    """Return how many a weight has; where it is packed, only its scale tells."""
    return weight.shape[0] if scale is None else scale.shape[0]


def _linears_shapes(
    x: Tensor, parts: list[Tensor], is_scaled: bool, is_biased: bool, kind: str = ""
) -> list[Tensor]:
    count = len(parts) // (1 + is_scaled + is_biased)
    columns = parts[count : 2 * count] if is_scaled else parts[:count]
    return [x.new_empty(*x.shape[:-1], one.shape[0]) for one in columns]


def _attention_shape(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keys: Tensor,
    values: Tensor,
    places: Tensor,
    branches: Tensor,
    scale: float,
    softcap: float,
    window: int,
) -> Tensor:
    return query.new_empty(1, query.shape[2], query.shape[1], values.shape[3])
