"""Log-probabilities: the target's own, exact enough to tell 1 from almost 1."""

from __future__ import annotations

import math

import pytest
import torch

from outrider.sampling.logprobs import token_logprobs


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_they_are_the_log_softmax_of_the_raw_logits(dtype: torch.dtype) -> None:
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(1)).to(dtype) * 3
    expected = logits.double().log_softmax(-1)
    found = token_logprobs(logits, [3, 299, 0, 7], 5)
    for row, (entry, token) in enumerate(zip(found, [3, 299, 0, 7], strict=True)):
        assert entry.chosen == pytest.approx(float(expected[row, token]), abs=1e-12)
        values, ids = expected[row].topk(5)
        assert [value for _, value in entry.top] == pytest.approx(values.tolist())
        if dtype != torch.bfloat16:
            assert [token for token, _ in entry.top] == ids.tolist()


def test_zero_means_certain_and_nothing_else() -> None:
    """PROC-10: a token of almost all the mass is not reported as certain."""
    logits = torch.tensor([[0.0, -20.0], [0.0, -math.inf]])
    almost, certain = token_logprobs(logits, [0, 0], 0)
    assert almost.chosen == pytest.approx(-math.exp(-20), rel=1e-6)
    assert certain.chosen == 0


def test_among_equals_the_lowest_ids_lead() -> None:
    logits = torch.zeros(1, 100)
    logits[0, 60] = 1.0
    (entry,) = token_logprobs(logits, [99], 4)
    assert [token for token, _ in entry.top] == [60, 0, 1, 2]


def test_top_is_optional_and_bounded_by_the_vocabulary() -> None:
    assert token_logprobs(torch.zeros(1, 3), [1], 0)[0].top == ()
    assert len(token_logprobs(torch.zeros(1, 3), [1], 20)[0].top) == 3
    assert token_logprobs(torch.zeros(0, 3), [], 2) == []
