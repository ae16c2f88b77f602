"""The promises, kept by a real model: the embedded SmolLM2-135M-Instruct."""

from __future__ import annotations

import functools

import pytest
import torch

import outrider
from outrider.targets.loading import LoadedModel, load_model
from outrider.types import Numerics
from support.tiny import greedy_ids

pytestmark = pytest.mark.embedded

# Long enough to repeat itself, so that copying drafters have something to do.
PROMPT = (
    "Rewrite this function, renaming `total` to `running_sum`:\n\n"
    "def add_up(values):\n    total = 0\n    for value in values:\n        total = total + value\n"
    "    return total\n"
)
TOKENS = 24


@functools.cache
def loaded(dtype: str) -> LoadedModel:
    return load_model("smollm2-135m", dtype=dtype, device="cpu")


@functools.cache
def decoder(drafter: str, numerics: Numerics, dtype: str) -> outrider.Decoder:
    model, tokenizer = loaded(dtype).model, loaded(dtype).tokenizer
    return outrider.load(model, tokenizer=tokenizer, drafter=drafter, numerics=numerics)


@functools.cache
def plain_result(numerics: Numerics, dtype: str, temperature: float) -> outrider.Result:
    return answer("none", numerics, dtype, temperature)


def answer(drafter: str, numerics: Numerics, dtype: str, temperature: float) -> outrider.Result:
    return decoder(drafter, numerics, dtype).generate(
        PROMPT,
        chat=True,
        max_new_tokens=TOKENS,
        temperature=temperature,
        seed=11,
        logprobs=3,
    )


@pytest.mark.parametrize("drafter", ["none", "ngram", "suffix"])
def test_greedy_text_is_what_transformers_generates(drafter: str) -> None:
    result = answer(drafter, "fast", "float32", 0.0)
    expected = greedy_ids(loaded("float32").model, result.prompt_ids, TOKENS)
    assert list(result.token_ids) == expected


@pytest.mark.parametrize("drafter", ["ngram", "suffix"])
def test_a_seed_draws_the_same_text_with_and_without_a_drafter(drafter: str) -> None:
    result = answer(drafter, "fast", "float32", 1.0)
    assert result.token_ids == plain_result("fast", "float32", 1.0).token_ids


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_invariant_numerics_give_the_bits_of_plain_decoding(dtype: str, temperature: float) -> None:
    result = answer("suffix", "invariant", dtype, temperature)
    plain = plain_result("invariant", dtype, temperature)
    assert result.token_ids == plain.token_ids
    assert result.logprobs == plain.logprobs


def test_copying_saves_passes_where_the_text_repeats_itself() -> None:
    stats = answer("suffix", "fast", "float32", 0.0).stats
    assert stats.rounds < TOKENS


def test_the_model_is_not_modified() -> None:
    model = loaded("float32").model
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    answer("suffix", "fast", "float32", 0.0)
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
