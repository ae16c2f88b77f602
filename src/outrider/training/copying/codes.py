"""Linear codes between states: what says the same in both, what says little, what says a token."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_FLOOR = 1e-4  # of the largest variance: directions with less are as if they had so much
_SAYINGS, _SAID_AT_ONCE, _SAYING_RATE = 240, 1024, 0.02  # the rate: of the mean size of a weight
_APART = 4.0  # standard deviation of the logits that saying begins with


def shared_code(x: Tensor, y: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return what of states x [N, X] and y [N, Y], row by row, agrees most.

    That is `a` [size, X], `b` [size, Y] and `agreement` [size], falling: a x and b y have, apart
    from their means, the variance 1 in each place, no correlation between places, and in the same
    place that agreement (canonical correlations; Hotelling 1936).
    """
    x, y = x - x.mean(dim=0), y - y.mean(dim=0)
    of_x, of_y = _whitening(x), _whitening(y)
    left, agreement, right = torch.linalg.svd(of_x @ (x.T @ y / len(x)) @ of_y)
    return left[:, :size].T @ of_x, right[:size] @ of_y, agreement[:size]


@torch.enable_grad()
def spoken_code(x: Tensor, rows: Tensor, size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return how states x [N, X] say, through `size` numbers, which of N tokens they are of.

    That is `a` [size, X] and `b` [Y, size]: of all `rows` [N, Y] of an output layer, b a x has the
    largest product with the state's own. What the two share is where a short fit begins.
    """
    a, said, agreement = shared_code(x, rows, size)
    b = (said * agreement[:, None]).T
    b = b * (_APART / (x[:_SAID_AT_ONCE] @ a.T @ b.T @ rows.T).std())
    parts = [part.detach().clone().requires_grad_() for part in (a, b)]
    rates = [_SAYING_RATE * float(part.detach().abs().mean()) for part in parts]
    groups = [{"params": [part], "lr": rate} for part, rate in zip(parts, rates, strict=True)]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95))
    random = torch.Generator().manual_seed(seed)
    for _ in range(_SAYINGS):
        asked = torch.randint(len(x), (_SAID_AT_ONCE,), generator=random).to(x.device)
        logits = x[asked] @ parts[0].T @ parts[1].T @ rows.T
        optimizer.zero_grad()
        functional.cross_entropy(logits, asked).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    code, answer = (part.detach() for part in parts)
    return code, answer


def norm_slope(state: Tensor, normed: Tensor) -> Tensor:
    """Return by what a norm multiplies each number [H] of states [N, H], their size apart."""
    unit = state / state.pow(2).mean(dim=-1, keepdim=True).sqrt()
    return (normed * unit).mean(dim=0) / unit.pow(2).mean(dim=0)


def quiet_directions(x: Tensor, size: int) -> Tensor:
    """Return directions [size, X], orthonormal, in which states x [N, X] differ least."""
    directions: Tensor = torch.linalg.eigh(torch.cov(x.T)).eigenvectors
    return directions[:, :size].T


def _whitening(x: Tensor) -> Tensor:
    """Return the symmetric matrix [X, X] that gives states of mean 0 the covariance 1."""
    values: Tensor
    vectors: Tensor
    values, vectors = torch.linalg.eigh(x.T @ x / len(x))
    return (vectors * values.clamp_min(_FLOOR * values.max()).rsqrt()) @ vectors.T
