"""Whole runs of the engine, and what it means that two of them say the same."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from transformers import PreTrainedTokenizerBase

from outrider.drafters.base import Drafter
from outrider.drafters.model import ModelDrafter
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.engine.result import Collector, Result
from outrider.engine.session import Session
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Target
from outrider.targets.transformers import TransformersTarget
from outrider.types import Rule
from support.tiny import VOCAB, noisy_copy, shared_model, tiny_model


@functools.cache
def shared_target(architecture: str = "llama") -> TransformersTarget:
    """Return a target over the shared model of an architecture; runs leave it as it was."""
    return TransformersTarget(shared_model(architecture))


@functools.cache
def _noisy_target(architecture: str) -> TransformersTarget:
    return TransformersTarget(noisy_copy(shared_model(architecture), 0.005))


@functools.cache
def _unrelated_target() -> TransformersTarget:
    return TransformersTarget(tiny_model(seed=7, num_hidden_layers=1))


def draft_model(kind: str, architecture: str = "llama") -> ModelDrafter:
    """Return a draft model for the shared model: "exact", "noisy" or "unrelated" to it."""
    if kind == "exact":
        model = TransformersTarget(shared_model(architecture))
    else:
        model = _noisy_target(architecture) if kind == "noisy" else _unrelated_target()
    return ModelDrafter(model, vocab_size=VOCAB, shared_ids=VOCAB)


def make_request(
    prompt_ids: Sequence[int],
    *,
    eos: Sequence[int] = (),
    tokenizer: PreTrainedTokenizerBase | None = None,
    prediction: Sequence[int] | None = None,
    session: Session | None = None,
    name: str = "request",
    **options: Any,
) -> Request:
    """Return a request; `options` are those of SamplingParams, the seed 0 if they name none."""
    params = SamplingParams(**options)
    return Request(
        prompt_ids=tuple(prompt_ids),
        params=params,
        seed=0 if params.seed is None else params.seed,
        eos_token_ids=tuple(eos),
        tokenizer=tokenizer,
        prediction_ids=None if prediction is None else tuple(prediction),
        session=session,
        name=name,
    )


def collect(engine: Engine, requests: Sequence[Request]) -> list[Result]:
    """Run all requests to their ends, and check that what they add up to is consistent."""
    collectors = [Collector(request.prompt_ids, request.seed) for request in requests]
    results: dict[int, Result] = {}
    for index, chunk, state in engine.run(requests):
        assert index not in results, "a chunk after the last"
        assert chunk.tokens, "a round that emits nothing"
        assert chunk.finish_reason == state.finish_reason
        collectors[index].add(chunk)
        if state.finish_reason is not None:
            results[index] = collectors[index].result(state.finish_reason, state.stats)
    assert sorted(results) == list(range(len(requests)))
    for result in results.values():
        assert result.stats.tokens == len(result.tokens)
    return [results[index] for index in range(len(requests))]


def decode(
    target: Target,
    request: Request,
    drafter: Drafter[Any] | None = None,
    *,
    rule: Rule = "match",
    max_draft: int | Literal["auto"] = 5,
) -> Result:
    """Run one request alone; drafts are of a fixed length, so that what they count is too."""
    (result,) = collect(Engine(target, drafter, rule=rule, max_draft=max_draft), [request])
    return result


def assert_same(found: Result, plain: Result) -> None:
    """Assert that a request says what plain decoding says: ids, text, reason, logprobs."""
    assert found.token_ids == plain.token_ids
    assert found.text == plain.text
    assert found.finish_reason == plain.finish_reason
    if plain.logprobs is None:
        assert found.logprobs is None
        return
    assert found.logprobs is not None
    for ours, theirs in zip(found.logprobs, plain.logprobs, strict=True):
        assert ours.chosen == pytest.approx(theirs.chosen, abs=1e-4)
        assert [token for token, _ in ours.top] == [token for token, _ in theirs.top]
        values = [value for _, value in theirs.top]
        assert [value for _, value in ours.top] == pytest.approx(values, abs=1e-4)
