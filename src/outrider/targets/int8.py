"""Linear layers with weights of eight bits: one scale a row, whole numbers from -127 to 127.

The weights alone are quantised; inputs and outputs keep their dtype, and sums are float32 at
least. The product is one operator of its own, so that a compiled pass can put a kernel in its
place. That kernel reads packed weights, and inputs as whole numbers of sixteen bits
(`kernels/short_rows.h`); once packed, a layer is multiplied by it in eager passes too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from outrider.targets.packing import pack_in_place, unpacked

_MOST = 127  # -128 is left out, so that the range is the same on both sides of zero
_FEW_ROWS = 32
"""Up to so many rows PyTorch's kernel beats widening the weights; its time grows with each row."""

_CPU_BLOCK = 1 << 19
_GPU_BLOCK = 1 << 26
"""Weights widened at a time: on a CPU as many as its cache holds."""


@torch.library.custom_op("outrider::int8_linear", mutates_args=())
def int8_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """Return (x @ weight.T) * scale + bias, rounded once to the dtype of `x`.

    `x` [..., in] floating, `weight` [out, in] int8 or packed, `scale` [out], `bias` [out] or None.
    """
    if _is_packed(weight):
        y: Tensor = torch.ops.outrider.linear(x, weight, scale, bias)
        return y
    rows = x.reshape(-1, weight.shape[1])
    if bias is None and _has_kernel(rows, weight, scale):
        y = torch._weight_int8pack_mm(rows.contiguous(), weight, scale)
    else:
        y = _widened_product(rows, weight) * scale
        y = (y if bias is None else y + bias).to(x.dtype)
    return y.view(*x.shape[:-1], weight.shape[0])


@int8_linear.register_fake
def _(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], scale.shape[0])


def _is_packed(weight: Tensor) -> bool:
    return weight.dim() > 2


def _has_kernel(rows: Tensor, weight: Tensor, scale: Tensor) -> bool:
    """Whether PyTorch's own kernel is right and worth it here.

    It reads the depth in vectors and does not mind a rest: with a depth of 40 its sums are wrong,
    with 24 or 33 it reads beyond the end. In float32 it goes number by number, far slower than
    widening.
    """
    return (
        rows.device.type == "cpu"
        and rows.dtype == scale.dtype == torch.bfloat16
        and 0 < rows.shape[0] <= _FEW_ROWS
        and rows.shape[1] > 0
        and rows.shape[1] % 32 == 0
        and weight.is_contiguous()
    )


def _widened_product(rows: Tensor, weight: Tensor) -> Tensor:
    """Return rows @ weight.T in float32, or in float64 if the rows are; whole numbers are exact."""
    exact = torch.promote_types(rows.dtype, torch.float32)
    on_gpu = rows.device.type == "cuda" and rows.dtype != exact
    if not on_gpu:
        rows = rows.to(exact)
    block = _GPU_BLOCK if rows.device.type == "cuda" else _CPU_BLOCK
    blocks = torch.split(weight, max(1, block // max(1, weight.shape[1])))
    # One place for all blocks: freed and taken again between results that stay, each would be
    # a hole in the heap, and all holes together the size of the wide weight.
    place = torch.empty_like(blocks[0], dtype=rows.dtype)
    parts = []
    for part in blocks:
        wide = place[: len(part)].copy_(part).T
        # The GPU multiplies narrow floats and sums them in float32 by itself.
        parts.append(torch.mm(rows, wide, out_dtype=exact) if on_gpu else rows @ wide)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


class Int8Linear(nn.Module):
    """A linear layer whose weight is `weight` [out, in] int8 times `scale` [out]."""

    weight: Tensor
    """Its numbers as they lie: `matrix`, or that packed."""
    scale: Tensor
    bias: nn.Parameter | None

    def __init__(self, weight: Tensor, scale: Tensor, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_parameter("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output [..., out] for inputs [..., in]."""
        y: Tensor = torch.ops.outrider.int8_linear(x, self.weight, self.scale, self.bias)
        return y

    @property
    def is_packed(self) -> bool:
        """Whether `weight` is packed."""
        return _is_packed(self.weight)

    @property
    def matrix(self) -> Tensor:
        """The weights [out, in] int8: a copy, if they are packed."""
        if not self.is_packed:
            return self.weight
        return unpacked(self.weight, self.out_features, self.in_features)

    def pack(self) -> None:
        """Let our own kernel multiply from here on; it must be there (`load_kernels`)."""
        if not self.is_packed:
            self.weight = pack_in_place(self.weight)

    def extra_repr(self) -> str:
        """Return the layer's shape, for `print(model)`."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def scale_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the scales of weights in `dtype`.

    Scales are some hundred times smaller than weights: float16 would lose the small ones.
    """
    return torch.float32 if dtype == torch.float16 else dtype


@torch.no_grad()
def quantize_rows(weight: Tensor, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Return int8 weights [out, in] and scales [out] on `device` for floating `weight` [out, in].

    A row's scale is its largest magnitude / 127, rounded to the dtype it is kept in *before* it
    divides the row, so that this rounding costs no accuracy. Ties round to even.
    """
    device = weight.device if device is None else device
    rows, depth = weight.shape
    quantised = torch.empty(rows, depth, dtype=torch.int8, device=device)
    scales = torch.empty(rows, dtype=scale_dtype(weight.dtype), device=device)
    exact = torch.promote_types(weight.dtype, torch.float32)
    step = max(1, _CPU_BLOCK // max(1, depth))  # keeps what is held in passing small
    for start in range(0, rows, step):
        part = slice(start, start + step)
        wide = weight[part].to(device=device, dtype=exact)
        largest = wide.abs().amax(dim=1) if depth else wide.new_zeros(len(wide))
        # A tensor as divisor: by a number, a GPU would multiply with a rounded inverse.
        scales[part] = largest / torch.full_like(largest, _MOST)
        divisor = scales[part].to(exact)
        divisor = torch.where(divisor == 0, torch.ones_like(divisor), divisor)
        quantised[part] = (wide / divisor[:, None]).round_().clamp_(-_MOST, _MOST).to(torch.int8)
    return quantised, scales
