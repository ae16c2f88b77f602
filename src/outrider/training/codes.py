"""Linear codes between states, in closed form: what says the same in both, and what says little."""

from __future__ import annotations

import torch
from torch import Tensor

_FLOOR = 1e-4  # of the largest variance: directions with less are as if they had so much


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
