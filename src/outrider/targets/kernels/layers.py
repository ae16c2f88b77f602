"""Layers by our own operators, for modules that are not compiled as a whole."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from outrider.targets.int8 import Int8Linear, quantize_rows
from outrider.targets.kernels import load_drafting_kernels, load_kernels
from outrider.targets.packing import packed


class KernelLinear(nn.Module):
    """A linear layer whose weights are kept as packed int8 with a scale a row, read once a call.

    Raises CompilerError where the kernels cannot be built.
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        load_kernels()
        weight, scale = quantize_rows(layer.weight.detach().float())
        self.register_buffer("weight", packed(weight))
        self.register_buffer("scale", scale)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output [..., out] for inputs [..., in]."""
        y: Tensor = torch.ops.outrider.linear(x, self.weight, self.scale.to(x.dtype), self.bias)
        return y


class WholeLinear(nn.Module):
    """A linear layer for drafters, whose rows are rounded to eight bits like its weights.

    Several layers that read the same rows are one, their outputs side by side. A row's bits depend
    on nothing else in the call, on any processor. The weights of a packed layer are shared. Raises
    CompilerError where the kernels cannot be built.
    """

    weight: Tensor
    """Packed: [blocks, in / 4, 16, 4] uint8."""
    scale: Tensor
    offset: Tensor

    def __init__(self, *layers: nn.Linear | Int8Linear) -> None:
        super().__init__()
        load_drafting_kernels()
        weight, scale = _packed_together(layers)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_buffer("offset", torch.cat([_offset(layer) for layer in layers]))

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weight, scale and offset, as operators take them."""
        return self.weight, self.scale, self.offset

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs [..., out] for inputs [..., in]."""
        rows = x.float().contiguous()
        y: Tensor = torch.ops.outrider.whole_linear(rows, self.weight, self.scale, self.offset)
        return y.to(x.dtype)


def use_kernels(module: nn.Module, kernel: Callable[[nn.Linear], nn.Module] = KernelLinear) -> None:
    """Put a layer by our kernels in the place of every linear layer of a module.

    What the module gives is a little different afterwards: for drafters, whose outputs are guesses.
    """
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, kernel(child))


def _packed_together(layers: tuple[nn.Linear | Int8Linear, ...]) -> tuple[Tensor, Tensor]:
    """Return the weights of layers, side by side and packed, and their scales in float32."""
    first, *rest = layers
    if isinstance(first, Int8Linear) and first.is_packed and not rest:
        return first.weight, first.scale.float()
    weights, scales = zip(*map(_whole_numbers, layers), strict=True)
    return packed(torch.cat(weights)), torch.cat(scales)


def _whole_numbers(layer: nn.Linear | Int8Linear) -> tuple[Tensor, Tensor]:
    """Return a layer's weights as int8 [out, in], and their scales [out] in float32."""
    if isinstance(layer, Int8Linear):
        return layer.matrix, layer.scale.float()
    return quantize_rows(layer.weight.detach().float())


def _offset(layer: nn.Linear | Int8Linear) -> Tensor:
    if layer.bias is None:
        return torch.zeros(layer.out_features, device=layer.weight.device)
    return layer.bias.detach().float()
