"""What the filters keep, against the plainest way to say it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from outrider.sampling.filters import top_p_filter

TOP_P = (0.0, 0.1, 0.5, 0.9, 0.99, 1 - 1e-7, 1 - 1e-12)


def by_sorting_everything(scores: Tensor, top_p: float) -> Tensor:
    ordered, ids = scores.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    mass_before = ordered.double().cumsum(dim=-1) - ordered
    num_kept = (mass_before < top_p).sum(dim=-1, keepdim=True).clamp(min=1)
    removed = torch.arange(scores.shape[-1]) >= num_kept
    return scores.masked_fill(removed.scatter(-1, ids, removed), -math.inf)


def rows(kind: str, seed: int, dtype: torch.dtype) -> Tensor:
    noise = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 3000, generator=noise, dtype=dtype)
    match kind:
        case "peaked":
            return scores * 8
        case "flat":
            return scores * 0.1
        case "ties":
            return scores.round()
        case "equal":
            return torch.zeros_like(scores)
        case "certain":
            return scores.index_fill(-1, torch.tensor([seed]), 40.0)
        case _:
            hidden = torch.rand(scores.shape, generator=noise) < 0.7
            return (scores * 3).round().masked_fill(hidden, -math.inf)


@pytest.mark.parametrize("top_p", TOP_P)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["peaked", "flat", "ties", "equal", "certain", "masked"])
def test_top_p_keeps_to_the_bit_what_a_stable_sort_of_all_tokens_keeps(
    kind: str, dtype: torch.dtype, top_p: float
) -> None:
    for seed in range(3):
        scores = rows(kind, seed, dtype)
        before = scores.clone()
        assert torch.equal(top_p_filter(scores, top_p), by_sorting_everything(scores, top_p))
        assert torch.equal(scores, before)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_top_p_leaves_a_row_without_probabilities_to_whoever_reports_it(value: float) -> None:
    scores = torch.stack([torch.full((50,), value), torch.arange(50.0)])
    filtered = top_p_filter(scores, 0.5)
    assert torch.equal(filtered[0], scores[0]) or filtered[0].isnan().all()
    assert torch.equal(filtered[1:], by_sorting_everything(scores[1:], 0.5))
