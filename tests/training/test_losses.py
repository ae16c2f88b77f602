"""Losses against values worked out by hand, and what they have in common."""

from __future__ import annotations

import math

import pytest
import torch

from outrider.errors import OptionError
from outrider.training.losses import (
    acceptance,
    cross_entropy,
    find_loss,
    forward_kl,
    hybrid,
    total_variation,
)

P = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)
LOGITS = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64).log()
NAMES = ["cross-entropy", "forward-kl", "total-variation", "hybrid"]


def test_the_known_case_has_its_known_values() -> None:
    assert float(acceptance(P, LOGITS)) == pytest.approx(0.7)
    assert float(total_variation(P, LOGITS)) == pytest.approx(0.3)
    assert float(forward_kl(P, LOGITS)) == pytest.approx(0.274887, abs=1e-6)
    assert float(hybrid(P, LOGITS)) == pytest.approx(0.296925, abs=1e-6)
    assert float(cross_entropy(P, LOGITS)) == pytest.approx(-math.log(0.2))


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_targets_own_distribution_has_no_loss(name: str) -> None:
    assert float(find_loss(name)(P, P.log())) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", NAMES[1:])
def test_descending_a_loss_raises_acceptance(name: str) -> None:
    logits = LOGITS.clone().requires_grad_(True)
    before = float(acceptance(P, LOGITS))
    for _ in range(60):
        (slope,) = torch.autograd.grad(find_loss(name)(P, logits).sum(), logits)
        logits = (logits - 0.1 * slope).detach().requires_grad_(True)
    assert float(acceptance(P, logits.detach())) > before
    assert logits.argmax() == P.argmax()


def test_tokens_the_drafter_does_not_know_cannot_be_accepted() -> None:
    known = P[:, :2]  # the third has a fifth of the target's word
    assert float(acceptance(known, known.log())) == pytest.approx(0.8)
    assert float(forward_kl(known, known.log())) == pytest.approx(0, abs=1e-9)


def test_losses_are_wide_even_where_logits_are_not() -> None:
    logits = torch.randn(4, 64, dtype=torch.bfloat16)
    p = torch.randn(4, 64).softmax(-1)
    for name in NAMES:
        assert find_loss(name)(p, logits).dtype == torch.float32


def test_the_slope_of_the_hybrid_is_that_of_its_parts() -> None:
    torch.manual_seed(3)
    p = torch.randn(6, 9, dtype=torch.float64).softmax(-1)[:, :7]
    logits = torch.randn(6, 7, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(6, dtype=torch.float64)
    rejection = total_variation(p, logits)
    share = torch.exp(-3 * (1 - rejection.detach()))
    plain = share * forward_kl(p, logits) + (1 - share) * rejection
    torch.testing.assert_close(hybrid(p, logits), plain)
    (expected,) = torch.autograd.grad((weights * plain).sum(), logits)
    (found,) = torch.autograd.grad((weights * hybrid(p, logits)).sum(), logits)
    torch.testing.assert_close(found, expected)


def test_an_unknown_loss_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OptionError, match="loss is 'tv'; it must be one of cross-entropy"):
        find_loss("tv")
