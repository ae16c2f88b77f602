"""The rejection rule on tensors: its law with real noise, and with a draft in half precision."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
from torch import Tensor

from outrider.proof.enumeration import VerificationRule as Rule
from outrider.types import DraftTree
from outrider.verification import verify


@dataclass
class ConstantRows:
    """A target that says p at every row."""

    p: Tensor

    def probs(self, row: int) -> Tensor:
        return self.p

    def token(self, row: int) -> int:
        raise AssertionError("the rules that reject draw by their own randomness")


@dataclass
class RacingRandomness:
    """A given number accepts where it lies below the probability; given noise runs the race."""

    uniform: float
    noise: Tensor

    def accept(self, key: int, probability: float) -> bool:
        return self.uniform < probability

    def draw(self, key: int, weights: Tensor) -> int:
        return int(torch.argmax(weights / self.noise))


def chi_square(is_shared: bool, num_rounds: int = 20_000) -> float:
    """Draft by an exponential race and recover by another, or by the same one."""
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(16, generator=generator)
    p, q = logits.softmax(0), (-logits).softmax(0)
    drafting, recovering = torch.empty(2, num_rounds, 16).exponential_(generator=generator)
    uniforms = torch.rand(num_rounds, generator=generator).tolist()
    noises = drafting if is_shared else recovering
    rows = ConstantRows(p)
    counts = [0] * 16
    for token, uniform, noise in zip(
        (q / drafting).argmax(1).tolist(), uniforms, noises, strict=True
    ):
        tree = DraftTree.chain((token,), q[None])
        verification = verify("rejection", rows, tree, RacingRandomness(uniform, noise))
        counts[token if verification.path else verification.next_token] += 1
    expected = num_rounds * p
    return float(((torch.tensor(counts) - expected) ** 2 / expected).sum())


def test_recovery_with_its_own_noise_keeps_the_law_and_with_the_drafts_does_not() -> None:
    """DIST-2: 69.8 is df + 10 sqrt(2 df) for df = 15, passed by chance 5 times in 10^9."""
    torch.set_num_threads(1)
    assert chi_square(is_shared=False) < 69.8 < chi_square(is_shared=True)


@dataclass
class RejectingRandomness:
    """Rejects whatever it is asked, and keeps what it was asked."""

    accepted: list[float] = field(default_factory=list)
    recovered: list[Tensor] = field(default_factory=list)

    def accept(self, key: int, probability: float) -> bool:
        self.accepted.append(probability)
        return False

    def draw(self, key: int, weights: Tensor) -> int:
        self.recovered.append(weights.double())
        return 0


def emitted_law(rule: Rule, p: Tensor, q: Tensor, drawn_in_proportion_to: Tensor) -> Tensor:
    """Work out the law of one emitted token by going through all drafts and both decisions."""
    chances = drawn_in_proportion_to.double() / drawn_in_proportion_to.double().sum()
    law = torch.zeros_like(chances)
    for token, chance in enumerate(chances):
        randomness = RejectingRandomness()
        rule(ConstantRows(p), DraftTree.chain((token,), q[None]), randomness)
        (accepted,), (recovered,) = randomness.accepted, randomness.recovered
        law[token] += chance * accepted
        law += chance * (1 - accepted) * recovered / recovered.sum()
    return law


@pytest.mark.parametrize(
    "rule", [partial(verify, name) for name in ("rejection", "block", "traversal")]
)
def test_q_in_half_precision_is_the_law_that_was_sampled_from(rule: Rule) -> None:
    """DIST-9: a q worked out anew in another precision is not the one the draft came from."""
    generator = torch.Generator().manual_seed(9)
    p = torch.randn(512, generator=generator).softmax(0)
    logits = torch.randn(512, generator=generator)
    half = logits.bfloat16().softmax(0)
    single = logits.softmax(0)

    sound = (emitted_law(rule, p, half, half) - p).abs().sum()
    faulty = (emitted_law(rule, p, single, half) - p).abs().sum()

    assert half.dtype is torch.bfloat16
    assert sound < 1e-6 and faulty > 1e-4
