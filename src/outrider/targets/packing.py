"""Weights of eight bits as products of whole numbers read them (`kernels/packed.h`).

A block is 16 rows of a weight matrix; four neighbours of each of them lie side by side.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_ROWS = 16
_TOGETHER = 4
_SIGN = 128
"""What is added to each weight, so that it is a byte without a sign."""

_AT_A_TIME = 1 << 20
"""Weights of which there are two copies in passing."""


def packed(weight: Tensor) -> Tensor:
    """Return int8 weights [out, in] as [blocks, in / 4, 16, 4] uint8, filled up with zeros."""
    rows, depth = weight.shape
    filled = functional.pad(weight, (0, -depth % _TOGETHER, 0, -rows % _ROWS))
    raised = filled.view(torch.uint8) ^ _SIGN
    blocks = raised.reshape(-(-rows // _ROWS), _ROWS, -(-depth // _TOGETHER), _TOGETHER)
    return blocks.transpose(1, 2).contiguous()


def unpacked(blocks: Tensor, rows: int, depth: int) -> Tensor:
    """Return the int8 weights [rows, depth] that were packed."""
    count, steps = blocks.shape[:2]
    raised = blocks.transpose(1, 2).reshape(count * _ROWS, steps * _TOGETHER)
    return (raised[:rows, :depth] ^ _SIGN).view(torch.int8)


def pack_in_place(weight: Tensor) -> Tensor:
    """Return int8 weights [out, in] packed: where they lay, if that leaves nothing to fill up."""
    rows, depth = weight.shape
    if rows % _ROWS or depth % _TOGETHER or not weight.is_contiguous():
        return packed(weight)
    step = max(_ROWS, _AT_A_TIME // max(1, depth) // _ROWS * _ROWS)
    for part in torch.split(weight, step):
        part.view(torch.uint8).view(-1).copy_(packed(part).view(-1))
    return weight.view(torch.uint8).view(rows // _ROWS, depth // _TOGETHER, _ROWS, _TOGETHER)
