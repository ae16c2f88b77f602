"""What the target thinks of a text is read off its own logits, position by position."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from outrider.bench.judging import diverge, log_likelihood
from outrider.targets.transformers import TransformersTarget
from support.tiny import noisy_copy, random_ids, shared_model, tiny_model

PROMPT = random_ids(7)
LENGTHS = (1, 31, 32, 33, 70)
"""Answers on both sides of what a pass holds."""


def log_probs(model: torch.nn.Module, answer: tuple[int, ...]) -> Tensor:
    """Return log-probabilities [n, V] at the positions of an answer, by the model alone."""
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.tensor([PROMPT + answer])).logits[0]
    return logits[len(PROMPT) - 1 : -1].log_softmax(-1)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_log_likelihood_is_the_sum_of_the_models_own(length: int) -> None:
    answer = random_ids(length, seed=length)
    expected = log_probs(shared_model(), answer)[range(length), list(answer)].sum()
    target = TransformersTarget(shared_model())
    assert log_likelihood(target, PROMPT, answer) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_divergence_is_that_of_the_models_distributions(length: int) -> None:
    answer = random_ids(length, seed=length)
    other = noisy_copy(shared_model(), 0.05)
    ours, theirs = log_probs(shared_model(), answer), log_probs(other, answer)
    expected = float((ours.exp() * (ours - theirs)).sum())
    same = int((ours.argmax(-1) == theirs.argmax(-1)).sum())
    target = TransformersTarget(shared_model())
    nats, agreeing = diverge(target, TransformersTarget(other), PROMPT, answer)
    assert nats == pytest.approx(expected, rel=1e-4)
    assert agreeing == same


def test_a_model_does_not_diverge_from_itself_nor_for_padding() -> None:
    target = TransformersTarget(shared_model())
    answer = random_ids(20, seed=3)
    assert diverge(target, target, PROMPT, answer) == (0.0, 20)
    wider = TransformersTarget(tiny_model(vocab_size=80))
    nats, _ = diverge(target, wider, PROMPT, answer)
    assert nats > 0


def test_nothing_is_left_open_behind_it() -> None:
    target = TransformersTarget(shared_model())
    log_likelihood(target, PROMPT, random_ids(40))
    before = target.open(4)
    diverge(target, target, PROMPT, random_ids(40))
    target.close(before)
    assert target.open(4) == before + 3
