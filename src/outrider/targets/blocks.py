"""Weights as the blocks of a GGUF file, for passes that read them so and compute in float32.

A block holds whole numbers with a scale and often an offset. A product that widens them while it
reads has the very bits of one with the file's expanded weights, and reads a fraction of the bytes:
it is the same target, only faster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

_FILE = "blocks.safetensors"
_KINDS = "kinds"


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """One weight [out, in]: the bytes [out, n] of its rows, and the kind of block they are."""

    stored: Tensor
    kind: str

    def expanded(self) -> Tensor:
        """Return the float32 weights [out, in] that the blocks stand for, by our kernels."""
        wide: Tensor = torch.ops.outrider.expand(self.stored, self.kind)
        return wide


def write_blocks(folder: Path, weights: Mapping[str, Blocks]) -> None:
    """Write weights, by the names they have in the model, into a folder."""
    kinds = json.dumps({name: weight.kind for name, weight in weights.items()})
    stored = {name: weight.stored for name, weight in weights.items()}
    save_file(stored, folder / _FILE, metadata={_KINDS: kinds})


def read_blocks(folder: Path) -> dict[str, Blocks]:
    """Return what `write_blocks` wrote; the file is mapped into memory, not copied."""
    with safe_open(folder / _FILE, framework="pt") as file:
        kinds = json.loads((file.metadata() or {})[_KINDS])
        return {name: Blocks(file.get_tensor(name), kind) for name, kind in kinds.items()}


class BlockLinear(nn.Module):
    """A linear layer that reads its weights as blocks; for float32 inputs on a CPU."""

    stored: Tensor
    bias: nn.Parameter | None

    def __init__(self, weight: Blocks, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.register_buffer("stored", weight.stored)
        self.register_parameter("bias", bias)
        self._kind = weight.kind

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output [..., out] for inputs [..., in]."""
        y: Tensor = torch.ops.outrider.linear(x, self.stored, None, self.bias, self._kind)
        return y

    def extra_repr(self) -> str:
        """Return the kind of its blocks, for `print(model)`."""
        return self._kind


@contextmanager
def read_as_blocks(model: nn.Module, weights: Mapping[str, Blocks]) -> Iterator[None]:
    """Let the linear layers of a model read these weights, by name, until the context ends."""
    places = list(_places(model, weights))
    try:
        for parent, child, layer, weight in places:
            setattr(parent, child, BlockLinear(weight, layer.bias))
        yield
    finally:
        for parent, child, layer, _ in places:
            setattr(parent, child, layer)


def _places(
    model: nn.Module, weights: Mapping[str, Blocks]
) -> Iterator[tuple[nn.Module, str, nn.Linear, Blocks]]:
    """Find the linear layers whose weight, by any of its names, there are blocks of."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for path, layer in model.named_modules():
        if type(layer) is not nn.Linear:
            continue
        named: Any = [name for name in names[id(layer.weight)] if name in weights]
        if named:
            parent, _, child = path.rpartition(".")
            yield model.get_submodule(parent), child, layer, weights[named[0]]
