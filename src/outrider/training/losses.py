"""What a drafter is trained to lower, and the acceptance it is after.

A drafter whose distribution q stands for the target's p is accepted with probability
alpha = sum min(p, q) = 1 - TV(p, q). The drafter may know a part of the vocabulary only: then q is
a distribution over that part, and p what the target gives it, which sums to less than 1.
All losses are computed in float32 or wider, row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn import functional

from outrider.errors import OptionError

LossName: TypeAlias = Literal["cross-entropy", "forward-kl", "total-variation", "hybrid"]
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(p [R, D], draft logits [R, D]) -> the loss of each row [R]."""

_STEEPNESS = 3.0


def acceptance(p: Tensor, logits: Tensor) -> Tensor:
    """Return alpha [R]: how likely a draft from softmax(logits) is to be accepted."""
    return torch.minimum(p, _wide(logits).softmax(dim=-1)).sum(dim=-1)


def cross_entropy(p: Tensor, logits: Tensor) -> Tensor:
    """Return the cross-entropy [R] of the target's likeliest token."""
    return functional.cross_entropy(_wide(logits), p.argmax(dim=-1), reduction="none")


def forward_kl(p: Tensor, logits: Tensor) -> Tensor:
    """Return KL(p || q) [R], of p made to sum to 1 over the tokens the drafter knows."""
    known = p / p.sum(dim=-1, keepdim=True).clamp_min(1e-9)
    return torch.xlogy(known, known).sum(dim=-1) - (known * _wide(logits).log_softmax(-1)).sum(-1)


def total_variation(p: Tensor, logits: Tensor) -> Tensor:
    """Return 1 - alpha [R], the probability that a draft is rejected."""
    return 1 - acceptance(p, logits)


def hybrid(p: Tensor, logits: Tensor) -> Tensor:
    """Return l * KL + (1 - l) * TV [R] with l = exp(-3 alpha), which is held fixed.

    KL has a slope where nothing is accepted yet; the closer a row is, the more its acceptance
    itself counts (LK losses, 2602.23881).
    """
    rejection = total_variation(p, logits)
    share = torch.exp(-_STEEPNESS * (1 - rejection.detach()))
    return share * forward_kl(p, logits) + (1 - share) * rejection


_LOSSES: dict[str, Loss] = {
    "cross-entropy": cross_entropy,
    "forward-kl": forward_kl,
    "total-variation": total_variation,
    "hybrid": hybrid,
}


def find_loss(name: str) -> Loss:
    """Return the loss of that name; raises OptionError."""
    if name not in _LOSSES:
        raise OptionError(f"loss is {name!r}; it must be one of {', '.join(get_args(LossName))}")
    return _LOSSES[name]


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
