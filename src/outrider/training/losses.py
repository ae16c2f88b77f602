"""What a drafter is trained to lower, and the acceptance it is after.

A drafter whose distribution q stands for the target's p is accepted with probability
alpha = sum min(p, q) = 1 - TV(p, q). The drafter may know a part of the vocabulary only: then q is
a distribution over that part, and p what the target gives it, which sums to less than 1.
All losses are computed in float32 or wider, row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

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
    apply: Any = _Hybrid.apply  # untyped there
    found: Tensor = apply(p, logits)
    return found


class _Hybrid(torch.autograd.Function):
    """The hybrid with its slope worked out by hand.

    Vocabularies are wide, so that what counts is how often they are gone through: a few times here,
    some twenty where the slope is found step by step.
    """

    @staticmethod
    def forward(ctx: Any, p: Tensor, logits: Tensor) -> Tensor:
        wide = logits.to(torch.promote_types(logits.dtype, p.dtype))
        q = wide.softmax(dim=-1)
        known = p / p.sum(dim=-1, keepdim=True).clamp_min(1e-9)
        alpha = torch.minimum(p, q).sum(dim=-1)
        share = torch.exp(-_STEEPNESS * alpha)
        spread = torch.logsumexp(wide, dim=-1) - torch.linalg.vecdot(known, wide)
        divergence = torch.special.entr(known).sum(dim=-1).neg() + spread
        ctx.save_for_backward(p, q, known, share)
        ctx.dtype = logits.dtype
        loss: Tensor = share * divergence + (1 - share) * (1 - alpha)
        return loss

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[None, Tensor]:
        p, q, known, share = ctx.saved_tensors
        # TV falls with each q that is below its p, and with none that is above.
        short = (q < p).to(q.dtype)
        reached = torch.linalg.vecdot(q, short)
        pull = short.neg_().add_(reached[:, None]).mul_((1 - share)[:, None]).add_(share[:, None])
        found = pull.mul_(q).sub_(known * share[:, None]).mul_(slope[:, None])
        return None, found.to(ctx.dtype)


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
