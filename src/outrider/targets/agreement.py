"""How far two ways to compute the same logits may be apart, and how far they are."""

from __future__ import annotations

import torch
from torch import Tensor

_EXACT = (torch.float32, torch.float64)


def difference(found: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference, relative to that of what is expected."""
    exact = expected.double()
    return float((found.double() - exact).norm() / exact.norm())


def most_difference(dtype: torch.dtype) -> float:
    """Return what rounding alone may make of it, where a feature left out makes more."""
    return 1e-3 if dtype in _EXACT else 0.2
