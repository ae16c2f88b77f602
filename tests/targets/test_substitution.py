"""Traced layers with our operators in their place say what they said before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from outrider.targets.int8 import int8_linear
from outrider.targets.kernels import load_kernels
from outrider.targets.packing import packed
from outrider.targets.substitution import substitute_kernels


class Three(nn.Module):
    """Three layers of one input, whose scales, if any, are worked out one by one."""

    def __init__(self, *, bias: bool, whole: bool) -> None:
        super().__init__()
        self.layers = [nn.Linear(8, width, bias=bias) for width in (4, 6, 5)]
        self.kept = nn.ModuleList(self.layers)
        self.whole = whole
        self.scale = nn.Buffer(torch.rand(6, dtype=torch.float64))
        for place, layer in enumerate(self.layers):
            numbers = (layer.weight * 50).to(torch.int8)
            self.register_buffer(f"numbers_{place}", packed(numbers))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        if not self.whole:
            return tuple(layer(x) + 1 for layer in self.layers)
        scales = [self.scale[: layer.out_features] for layer in self.layers]
        return tuple(
            int8_linear(
                x, self.get_buffer(f"numbers_{place}"), scale.to(x.dtype), self.layers[place].bias
            )
            + 1
            for place, scale in enumerate(scales)
        )


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_layers_of_one_input_say_what_they_said(bias: bool, whole: bool) -> None:
    load_kernels()
    model = Three(bias=bias, whole=whole)
    x = torch.randn(1, 3, 8)
    with torch.no_grad():
        expected = model(x)
        program = torch.export.export(model, (x,), strict=False)
        substitute_kernels(program)
        found = program.module()(x)
    torch.testing.assert_close(found, expected)


def test_layers_of_one_input_are_one_operator() -> None:
    load_kernels()
    with torch.no_grad():
        program = torch.export.export(Three(bias=True, whole=False), (torch.randn(1, 3, 8),))
    substitute_kernels(program)
    targets: list[Any] = [node.target for node in program.graph.nodes]
    assert targets.count(torch.ops.outrider.linears.default) == 1
    assert torch.ops.outrider.linear.default not in targets
    assert torch.ops.aten.linear.default not in targets
