"""How drafts are drawn: with the target's noise under match, with fresh noise when rejecting."""

from __future__ import annotations

import math

import pytest
import torch

from outrider.errors import NumericsError
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.params import SamplingParams
from outrider.sampling.pipeline import LogitsPipeline
from outrider.sampling.rows import SampledRows
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.types import NO_DRAFT, Rule

V = 40
SIGMAS = 6.0
LOGITS = torch.randn(V, generator=torch.Generator().manual_seed(0))
REJECTING: list[Rule] = ["rejection", "block"]


@pytest.mark.parametrize("rule", ["match", *REJECTING])
def test_greedy_drafts_are_the_argmax_and_carry_no_q(rule: Rule) -> None:
    sampler = KeyedDraftSampler(0.0, KeyedNoise(1), rule)
    assert sampler.is_greedy
    assert sampler.draw(LOGITS, 9) == (int(LOGITS.argmax()), None)
    assert sampler.draw(torch.tensor([1.0, 2.0, 2.0]), 9) == (1, None)


def test_under_match_a_drafter_equal_to_the_target_always_meets_it() -> None:
    noise = KeyedNoise(21)
    sampler = KeyedDraftSampler(0.7, noise, "match")
    pipeline = LogitsPipeline(SamplingParams(temperature=0.7), (1,), (), V, LOGITS.device)
    for position in range(1, 200):
        row = SampledRows(LOGITS.unsqueeze(0), NO_DRAFT, pipeline, noise, position)
        assert sampler.draw(LOGITS, position) == (row.token(0), None)


@pytest.mark.parametrize("rule", ["match", *REJECTING])
def test_a_drafter_can_cut_its_tail_as_the_target_does(rule: Rule) -> None:
    noise, options = KeyedNoise(4), {"top_k": 12, "top_p": 0.8, "min_p": 0.02}
    sampler = KeyedDraftSampler(0.9, noise, rule, top_k=12, top_p=0.8, min_p=0.02)
    params = SamplingParams(temperature=0.9).with_options(**options)
    pipeline = LogitsPipeline(params, (1,), (), V, LOGITS.device)
    for position in range(1, 50):
        row = SampledRows(LOGITS.unsqueeze(0), NO_DRAFT, pipeline, noise, position)
        token, q = sampler.draw(LOGITS, position)
        if q is None:
            assert token == row.token(0)
        else:
            assert torch.equal(q, row.probs(0))
            assert q[token] > 0


@pytest.mark.parametrize(
    ("rule", "dtype"), [("rejection", torch.bfloat16), ("block", torch.float64)]
)
def test_q_is_the_law_the_draft_was_drawn_from(rule: Rule, dtype: torch.dtype) -> None:
    """DIST-9."""
    law = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = (law.log() * 2).to(dtype)
    sampler = KeyedDraftSampler(2.0, KeyedNoise(3), rule)
    counts, rounds = torch.zeros(4, dtype=torch.float64), 2000
    for position in range(rounds):
        token, q = sampler.draw(logits, position)
        counts[token] += 1
    assert q is not None
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert torch.equal(q, (logits.to(wide) / 2).softmax(-1))
    chi_square = float(((counts - q.double() * rounds) ** 2 / (q.double() * rounds)).sum())
    assert chi_square < 44.9  # 1 - 1e-9 quantile at 3 degrees of freedom


@pytest.mark.parametrize("rule", REJECTING)
def test_a_position_drafted_again_gets_fresh_noise(rule: Rule) -> None:
    """Under block verification, that a draft was dropped depends on the drafts after it."""
    sampler = KeyedDraftSampler(1.0, KeyedNoise(3), rule)
    pairs = 1000
    logits = torch.zeros(4)
    same = sum(
        sampler.draw(logits, position)[0] == sampler.draw(logits, position)[0]
        for position in range(pairs)
    )
    assert abs(same / pairs - 0.25) < SIGMAS * math.sqrt(0.1875 / pairs)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_draft_logits_that_are_not_numbers_are_an_error(temperature: float) -> None:
    sampler = KeyedDraftSampler(temperature, KeyedNoise(0), "match")
    with pytest.raises(NumericsError, match="position 6"):
        sampler.draw(torch.tensor([1.0, math.nan]), 6)
