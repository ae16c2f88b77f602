"""Sets of nodes as bits, the way operators take them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_WORD = 64


def bit_words(sets: Sequence[int]) -> Tensor:
    """Return sets [R], each the bits of a number, as 64-bit words [R, w], the lowest first."""
    most = max(sets)
    if most >> (_WORD - 1) == 0:
        return torch.tensor(sets).unsqueeze(1)
    count = -(-most.bit_length() // _WORD)
    return torch.tensor([[_signed(bits >> (_WORD * w)) for w in range(count)] for bits in sets])


def _signed(bits: int) -> int:
    word = bits & ((1 << _WORD) - 1)
    return word - (1 << _WORD) if word >> (_WORD - 1) else word
