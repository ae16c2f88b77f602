"""The quantised tensors of a GGUF file, as the blocks our kernels read.

Formats differ in how they lay out whole numbers, scales and offsets; all become one of four kinds
of block (`kernels/blocks.h`). Whole numbers are found from the expanded values, which the `gguf`
package computes, and a weight is taken only if its blocks give back each value exactly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.targets.blocks import Blocks
from outrider.targets.streaming import StoredTensors

_Floats: TypeAlias = NDArray[np.float32]
_Bytes: TypeAlias = NDArray[np.uint8]
_Scales: TypeAlias = Callable[[_Bytes], tuple[_Floats, _Floats | None]]
"""From blocks [n, bytes], the scales and the offsets [n, blocks of ours in one of theirs]."""


def blocks_of(path: Path, expanded: Path) -> dict[str, Blocks]:
    """Return the weights that lie in a GGUF file in blocks we read, by the names in `expanded`.

    `expanded` is a folder with the same weights in float32. Rows are found by what is in them, so
    neither names nor the order of rows need be the file's.
    """
    stored = StoredTensors.of([str(file) for file in sorted(expanded.glob("*.safetensors"))])
    rows = _Rows()
    for tensor in _tensors(path):
        rows.add(tensor)
    found = {name: rows.find(stored.read(name)) for name in sorted(stored.files)}
    return {name: blocks for name, blocks in found.items() if blocks is not None}


@dataclass(frozen=True, slots=True, eq=False)
class _Packed:
    """A tensor of a GGUF file: its values [out, in] and the bytes of its rows [out, n]."""

    values: _Floats
    stored: _Bytes
    kind: str


class _Rows:
    """Rows of packed tensors, to be found by their values."""

    def __init__(self) -> None:
        self._stored: dict[bytes, tuple[_Bytes, str]] = {}

    def add(self, tensor: _Packed) -> None:
        for values, stored in zip(tensor.values, tensor.stored, strict=True):
            self._stored[_key(values)] = stored, tensor.kind

    def find(self, weight: torch.Tensor) -> Blocks | None:
        """Return blocks for a weight [out, in], None if not all its rows have them, of a kind."""
        if weight.dim() != 2 or weight.dtype != torch.float32:
            return None
        found = [self._stored.get(_key(row)) for row in weight.numpy()]
        known = [one for one in found if one is not None]
        if not known or len(known) < len(found) or len({kind for _, kind in known}) > 1:
            return None
        return Blocks(torch.from_numpy(np.stack([stored for stored, _ in known])), known[0][1])


def _key(row: _Floats) -> bytes:
    values = row + np.float32(0)  # of both zeros one
    return hashlib.blake2b(values.tobytes(), digest_size=16).digest()


def _tensors(path: Path) -> Iterator[_Packed]:
    import gguf

    for tensor in gguf.GGUFReader(path).tensors:
        form = _FORMS.get(tensor.tensor_type.name)
        if form is None or tensor.data.ndim != 2:
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        _, size = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
        scales, offsets = form.scales(tensor.data.reshape(-1, size))
        packed = _pack(values, scales.reshape(-1, 1), offsets, form)
        if packed is not None:
            yield packed


def _pack(values: _Floats, scales: _Floats, offsets: _Floats | None, form: _Form) -> _Packed | None:
    """Find the whole numbers; None if they, with scales and offsets, are not quite the values."""
    wide = values.reshape(len(scales), -1).astype(np.float64)
    shift = np.zeros((len(scales), 1)) if offsets is None else offsets.reshape(-1, 1)
    divisor = np.where(scales == 0, 1, scales)
    whole = np.rint((wide - shift) / divisor)
    again = (whole * scales + shift).astype(np.float32)
    low, high = (0, 15) if form.kind == "nibbles" else (-128, 127)
    if not (np.array_equal(again, wide) and whole.min() >= low and whole.max() <= high):
        return None
    numbers: _Bytes = whole.astype(np.int8).view(np.uint8)
    if form.kind == "nibbles":
        half = numbers.shape[1] // 2
        numbers = np.bitwise_or(numbers[:, :half], numbers[:, half:] * np.uint8(16))
    heads = [scales] if offsets is None else [scales, offsets.reshape(-1, 1)]
    parts = [part.astype(np.float32).view(np.uint8).reshape(len(scales), 4) for part in heads]
    stored = np.concatenate([*parts, numbers], axis=1)
    return _Packed(values, stored.reshape(len(values), -1), form.kind)


# -- where each format keeps its scales and offsets ----------------------------------------------


def _half(blocks: _Bytes, first: int) -> _Floats:
    return np.ascontiguousarray(blocks[:, first : first + 2]).view(np.float16).astype(np.float32)


def _scale_alone(blocks: _Bytes) -> tuple[_Floats, _Floats | None]:
    return _half(blocks, 0), None


def _scale_about_eight(blocks: _Bytes) -> tuple[_Floats, _Floats | None]:
    scale = _half(blocks, 0)
    return scale, -8 * scale


def _scale_and_offset(blocks: _Bytes) -> tuple[_Floats, _Floats | None]:
    return _half(blocks, 0), _half(blocks, 2)


def _two_levels(blocks: _Bytes) -> tuple[_Floats, _Floats | None]:
    """Eight scales and offsets of six bits, with a scale for each of the two."""
    import gguf

    form: Any = gguf.quants.Q4_K
    scales, offsets = form.get_scale_min(blocks[:, 4:16])
    wide = scales.astype(np.float32), offsets.astype(np.float32)
    return _half(blocks, 0) * wide[0], -(_half(blocks, 2) * wide[1])


def _sixteen_scales(blocks: _Bytes) -> tuple[_Floats, _Floats | None]:
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    return _half(blocks, 208) * scales, None


@dataclass(frozen=True, slots=True)
class _Form:
    kind: str
    scales: _Scales


_FORMS: Mapping[str, _Form] = {
    "Q4_0": _Form("nibbles", _scale_about_eight),
    "Q4_1": _Form("nibbles", _scale_and_offset),
    "Q5_0": _Form("bytes", _scale_alone),
    "Q5_1": _Form("offset_bytes", _scale_and_offset),
    "Q8_0": _Form("bytes", _scale_alone),
    "Q4_K": _Form("nibbles", _two_levels),
    "Q5_K": _Form("offset_bytes", _two_levels),
    "Q6_K": _Form("short_bytes", _sixteen_scales),
}
