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

Grading: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(p [R, D], draft logits [R, D]) -> the loss of each row [R], and its acceptance [R]."""

_STEEPNESS = 3.0
_CACHED = 131_072  # numbers that are worked on at once on a CPU


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
    return _graded_hybrid(p, logits)[0]


def _graded_hybrid(p: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    apply: Any = _Hybrid.apply  # untyped there
    loss, alpha = apply(p, logits)
    return loss, alpha


class _Hybrid(torch.autograd.Function):
    """The hybrid with its slope worked out by hand, a few rows at a time.

    Vocabularies are wide, so that what counts is how often they are gone through, and where: rows
    that are finished with before the next are begun stay in the processor's cache.
    """

    @staticmethod
    def forward(ctx: Any, p: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        loss = p.new_empty(len(p), dtype=torch.promote_types(logits.dtype, p.dtype))
        alpha, slope = torch.empty_like(loss), torch.empty_like(logits)
        rows = max(1, _CACHED // p.shape[-1] if p.device.type == "cpu" else len(p))
        parts = (torch.split(part, rows) for part in (p, logits, loss, alpha, slope))
        for each in zip(*parts, strict=True):
            _grade(*each)
        ctx.save_for_backward(slope)
        ctx.mark_non_differentiable(alpha)
        return loss, alpha

    @staticmethod
    def backward(ctx: Any, outer: Tensor, _: object) -> tuple[None, Tensor]:
        (slope,) = ctx.saved_tensors
        return None, slope * outer[:, None].to(slope.dtype)


def _grade(p: Tensor, logits: Tensor, loss: Tensor, alpha: Tensor, slope: Tensor) -> None:
    """Fill in hybrid and acceptance [R] of some rows, and the slope [R, D] for the logits."""
    wide = logits.to(loss.dtype)
    q = wide.softmax(dim=-1)
    known = p / p.sum(dim=-1, keepdim=True).clamp_min(1e-9)
    torch.sum(torch.minimum(p, q), dim=-1, out=alpha)
    share = torch.exp(-_STEEPNESS * alpha)
    spread = torch.logsumexp(wide, dim=-1) - torch.linalg.vecdot(known, wide)
    divergence = torch.special.entr(known).sum(dim=-1).neg() + spread
    torch.add(share * divergence, (1 - share) * (1 - alpha), out=loss)
    # TV falls with each q that is below its p, and with none that is above.
    short = (q < p).to(q.dtype)
    reached = torch.linalg.vecdot(q, short)
    pull = short.neg_().add_(reached[:, None]).mul_((1 - share)[:, None]).add_(share[:, None])
    slope.copy_(pull.mul_(q).sub_(known * share[:, None]))


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


def find_grading(name: str) -> Grading:
    """Return what gives that loss and, on the way, the acceptance; raises OptionError."""
    loss = find_loss(name)
    if loss is hybrid:
        return _graded_hybrid
    return lambda p, logits: (loss(p, logits), acceptance(p, logits.detach()))


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
