"""An int8 product is the exact one, rounded once, whatever the shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from outrider.targets import int8
from outrider.targets.int8 import Int8Linear, int8_linear, quantize_rows

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def _layer(outputs: int, depth: int, dtype: torch.dtype, *, bias: bool = False) -> Int8Linear:
    generator = torch.Generator().manual_seed(outputs + depth)
    weight = torch.randn(outputs, depth, generator=generator).to(dtype)
    added = torch.nn.Parameter(torch.randn(outputs, generator=generator).to(dtype))
    return Int8Linear(*quantize_rows(weight), added if bias else None)


def _inputs(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def _exact(layer: Int8Linear, x: Tensor) -> Tensor:
    y = (x.double() @ layer.weight.double().T) * layer.scale.double()
    return y if layer.bias is None else y + layer.bias.detach().double()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("depth", [1, 24, 32, 33, 40, 48, 64, 96])
@pytest.mark.parametrize("rows", [1, 3, 40])
@torch.no_grad()
def test_a_product_is_the_exact_one_rounded_once(
    rows: int, depth: int, bias: bool, dtype: torch.dtype
) -> None:
    layer = _layer(49, depth, dtype, bias=bias)
    x = _inputs(rows, depth, dtype=dtype)
    exact = _exact(layer, x)
    found = layer(x)
    assert found.dtype == dtype
    # Sums in another order, then one rounding of at most half a unit in the last place.
    sums = 1e-14 if dtype == torch.float64 else 2e-5
    bound = sums * exact.abs().max() + exact.abs() * (torch.finfo(dtype).eps / 2)
    assert ((found.double() - exact).abs() <= bound).all()


@torch.no_grad()
def test_scale_and_bias_are_applied_before_the_rounding() -> None:
    weight = torch.zeros(1, 32, dtype=torch.int8)
    weight[0, :3] = torch.tensor([127, 127, 3])  # 257 lies halfway between two bfloat16
    one = torch.ones(1, dtype=torch.bfloat16)
    found = int8_linear(torch.ones(1, 32, dtype=torch.bfloat16), weight, one, one)
    assert found.item() == 258


@pytest.mark.parametrize("shape", [(32,), (2, 3, 32), (0, 32), (1, 0, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_leading_dimensions_are_kept(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    layer = _layer(5, 32, dtype)
    x = _inputs(*shape, dtype=dtype)
    assert layer(x).shape == (*shape[:-1], 5)
    rows = [layer(row) for row in x.reshape(-1, 32)]
    for found, row in zip(layer(x).reshape(-1, 5), rows, strict=True):
        torch.testing.assert_close(found, row)


@torch.no_grad()
def test_widening_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = _layer(50, 32, torch.float64, bias=True)
    x = _inputs(3, 32, dtype=torch.float64)
    whole = layer(x)
    monkeypatch.setattr(int8, "_CPU_BLOCK", 7 * 32)
    torch.testing.assert_close(layer(x), whole, rtol=0, atol=1e-13)
    torch.testing.assert_close(whole, _exact(layer, x), rtol=0, atol=1e-13)


class _Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps all storage that operations give, so that no address comes twice."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[int, torch.UntypedStorage] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, list | tuple) else [found]:
            if isinstance(tensor, Tensor):
                self.seen[tensor.data_ptr()] = tensor.untyped_storage()
        return found


@torch.no_grad()
def test_all_blocks_are_widened_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the holes they leave between the results add up to the whole wide weight."""
    monkeypatch.setattr(int8, "_CPU_BLOCK", 7 * 32)
    weight, rows = _layer(70, 32, torch.float32).weight, _inputs(1, 32, dtype=torch.float32)
    given = {weight.untyped_storage().data_ptr(), rows.untyped_storage().data_ptr()}
    with _Storages() as storages:
        int8._widened_product(rows, weight)
    taken = {s.data_ptr(): s.nbytes() for s in storages.seen.values()}
    assert sum(size for at, size in taken.items() if at not in given) <= 4 * (7 * 32 + 2 * 70)


@torch.no_grad()
def test_a_row_that_is_a_view_is_read_right() -> None:
    layer = _layer(6, 32, torch.bfloat16)
    wide = _inputs(4, 64, dtype=torch.bfloat16)
    assert torch.equal(layer(wide[:, ::2]), layer(wide[:, ::2].contiguous()))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bias", [False, True])
def test_the_operator_is_what_it_declares(bias: bool, dtype: torch.dtype) -> None:
    layer = _layer(6, 32, dtype, bias=bias)
    inputs = (_inputs(2, 3, 32, dtype=dtype), layer.weight, layer.scale)
    added = None if layer.bias is None else layer.bias.detach()
    operator: Any = int8_linear
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(operator, (*inputs, added), test_utils=checks)


def test_an_exported_layer_is_one_operator() -> None:
    """A compiled pass finds it by its name, with all four arguments in order."""
    layer = _layer(6, 32, torch.float32, bias=True)
    x = _inputs(3, 32, dtype=torch.float32)
    program = torch.export.export(layer, (x,), strict=False)
    (node,) = [n for n in program.graph.nodes if str(n.target) == "outrider.int8_linear.default"]
    assert len(node.args) == 4 and not node.kwargs
    assert torch.equal(program.module()(x), layer(x))


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_weight_is_off_by_half_a_step_at_most(dtype: torch.dtype) -> None:
    weight = torch.randn(20, 48, generator=torch.Generator().manual_seed(1)).to(dtype)
    quantised, scale = quantize_rows(weight)
    assert quantised.dtype == torch.int8
    assert scale.dtype == (torch.float32 if dtype == torch.float16 else dtype)
    assert quantised.abs().amax(dim=1).eq(127).all()
    back = quantised.double() * scale.double()[:, None]
    bound = scale.double()[:, None] * (0.5 + 1e-6)
    assert ((back - weight.double()).abs() <= bound).all()


def test_ties_go_to_the_even_number() -> None:
    row = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -127.0]])
    quantised, scale = quantize_rows(row)
    assert scale.tolist() == [1.0]
    assert quantised.tolist() == [[127, 0, 2, 2, 0, -2, -127]]


def test_rows_without_a_scale_are_zero() -> None:
    weight = torch.tensor([[0.0, -0.0], [1e-45, 0.0], [1.0, 0.0]])
    quantised, scale = quantize_rows(weight)
    assert quantised.tolist() == [[0, 0], [0, 0], [127, 0]]
    assert torch.isfinite(quantised * scale[:, None]).all()


def test_rows_are_quantised_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(11, 16, generator=torch.Generator().manual_seed(1))
    whole = quantize_rows(weight)
    monkeypatch.setattr(int8, "_CPU_BLOCK", 3 * 16)
    for found, expected in zip(quantize_rows(weight), whole, strict=True):
        assert torch.equal(found, expected)
