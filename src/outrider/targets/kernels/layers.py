"""Layers by our own operators, for modules that are not compiled as a whole."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from outrider.targets.int8 import quantize_rows
from outrider.targets.kernels import load_kernels


class KernelLinear(nn.Module):
    """A linear layer whose weights are kept as int8 with a scale a row, and read once a call.

    Raises CompilerError where the kernels cannot be built.
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        load_kernels()
        weight, scale = quantize_rows(layer.weight.detach().float())
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output [..., out] for inputs [..., in]."""
        y: Tensor = torch.ops.outrider.linear(x, self.weight, self.scale.to(x.dtype), self.bias)
        return y


def use_kernels(module: nn.Module) -> None:
    """Put `KernelLinear` in the place of every linear layer of a module.

    What the module gives is a little different afterwards: for drafters, whose outputs are guesses.
    """
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, KernelLinear(child))
