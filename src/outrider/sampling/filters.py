"""The steps that cut the tail of a distribution: temperature, top_k, top_p, min_p.

As in Transformers, in its order; among equal scores the lowest ids stay. A row's result does not
depend on the other rows. Scores [R, V] come in and go out; nothing is changed in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Filter: TypeAlias = Callable[[Tensor], Tensor]


def build_filters(
    temperature: float, *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> list[Filter]:
    """Return the steps these options call for, in order: none if all are neutral, or greedy."""
    if temperature == 0:
        return []
    filters: list[Filter] = []
    if temperature != 1:
        filters.append(lambda scores: scores / temperature)
    if top_k:
        filters.append(partial(top_k_filter, top_k=top_k))
    if top_p < 1:
        filters.append(partial(top_p_filter, top_p=top_p))
    if min_p:
        filters.append(partial(min_p_filter, min_p=min_p))
    return filters


def top_k_filter(scores: Tensor, top_k: int) -> Tensor:
    """Mask all but the `top_k` highest scores; those equal to the last of them stay too."""
    if top_k >= scores.shape[-1]:
        return scores
    lowest = scores.topk(top_k, dim=-1).values[..., -1:]
    return scores.masked_fill(scores < lowest, -math.inf)


def top_p_filter(scores: Tensor, top_p: float) -> Tensor:
    """Keep the likeliest tokens, each as long as those before it hold less than `top_p`.

    The likeliest always stays (Holtzman et al. 2020, section 3.1).
    """
    probs = scores.softmax(dim=-1)
    if scores.device.type == "cpu":
        rows = [_keep_nucleus(row, prob, top_p) for row, prob in zip(scores, probs, strict=True)]
        return torch.stack(rows)
    ordered, ids = probs.sort(dim=-1, descending=True, stable=True)
    mass_before = ordered.double().cumsum(dim=-1) - ordered
    removed = mass_before >= top_p
    removed[..., 0] = False
    return scores.masked_fill(removed.scatter(-1, ids, removed), -math.inf)


def min_p_filter(scores: Tensor, min_p: float) -> Tensor:
    """Mask tokens less likely than `min_p` times the likeliest (Nguyen et al. 2024)."""
    # A ratio of probabilities is a difference of scores: no softmax is needed.
    lowest = scores.amax(dim=-1, keepdim=True) + math.log(min_p)
    return scores.masked_fill(scores < lowest, -math.inf)


def _keep_nucleus(scores: Tensor, probs: Tensor, top_p: float) -> Tensor:
    """Filter one row [V] by top_p, sorting no more than the tokens that can be in the nucleus.

    Keeps what a stable sort of all tokens would keep. NumPy sorts the probabilities by themselves
    in a tenth of the time that PyTorch takes to sort them together with their places.
    """
    # All V tokens below this bound hold less than 1 - top_p together: by a margin, but rounding
    # may be wider where top_p is very close to 1.
    for bound in (0.99 * (1 - top_p) / len(probs), 0.0):
        candidates = (probs >= bound).nonzero().squeeze(-1)
        if len(candidates) == 0:  # not numbers: left for the caller to report
            return scores
        values = probs[candidates]
        ordered = torch.from_numpy(np.sort(values.numpy(force=True))).flip(0)
        mass = ordered.cumsum(0, dtype=torch.float64)
        if mass[-1] >= top_p:
            break
    num_kept = max(1, int((mass - ordered < top_p).count_nonzero()))
    kept = candidates[_highest(values, num_kept, lowest=ordered[num_kept - 1])]
    filtered = torch.full_like(scores, -math.inf)
    filtered[kept] = scores[kept]
    return filtered


def _highest(values: Tensor, count: int, lowest: Tensor) -> Tensor:
    """Mark the `count` highest of values [C], of equals the first; the last is `lowest`."""
    is_kept = values >= lowest
    surplus = int(is_kept.count_nonzero()) - count
    if surplus:
        equals = (values == lowest).nonzero().squeeze(-1)
        is_kept[equals[-surplus:]] = False
    return is_kept
