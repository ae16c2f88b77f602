"""Log-probabilities of emitted tokens under the target's own distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.types import TokenIds, TokenLogprobs


def token_logprobs(logits: Tensor, ids: TokenIds, top: int) -> list[TokenLogprobs]:
    """Return the log-probability of `ids[r]` in each row [R, V], and of the row's `top` likeliest.

    The logits are the target's raw ones, before any option. The softmax runs in float64, so that
    a token of almost all the mass does not round to exactly 0. Among equals the lowest ids lead.
    """
    assert logits.shape[0] == len(ids), (logits.shape, len(ids))
    if not ids:
        return []
    logprobs = logits.double().log_softmax(dim=-1)
    chosen = logprobs.gather(1, torch.tensor(ids, device=logits.device).unsqueeze(1))
    likeliest = _likeliest(logprobs, min(top, logits.shape[-1]))
    return [
        TokenLogprobs(value, tuple(row[:top]))
        for value, row in zip(chosen.squeeze(1).tolist(), likeliest, strict=True)
    ]


def _likeliest(logprobs: Tensor, top: int) -> list[list[tuple[int, float]]]:
    """Return the `top` likeliest tokens of each row, and any equal to the last, best first."""
    found: list[list[tuple[int, float]]] = [[] for _ in logprobs]
    if top == 0:
        return found
    # topk may choose any of equal values: take its last value as a bound and sort on the host.
    lowest = logprobs.topk(top, dim=-1).values[:, -1:]
    cells = (logprobs >= lowest).nonzero()
    values = logprobs[cells[:, 0], cells[:, 1]].tolist()
    for (row, token), value in zip(cells.tolist(), values, strict=True):
        found[row].append((token, value))
    return [sorted(row, key=lambda pair: -pair[1]) for row in found]
