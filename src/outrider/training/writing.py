"""Many texts of the target at once, each given back as soon as it ends."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from outrider.engine.request import Request, check_prompt, check_request
from outrider.engine.result import Collector, Result
from outrider.errors import OptionError, PromptError
from outrider.sampling.defaults import eos_token_ids
from outrider.sampling.params import MAX_SEED, SamplingParams
from outrider.types import TokenIds

if TYPE_CHECKING:
    from outrider.decoder import Decoder


def seed_of(seed: int, name: object) -> int:
    """Return the seed of one text of many: a function of the run's seed and the text's name."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") & MAX_SEED


def write_all(
    decoder: Decoder,
    prompts: Sequence[TokenIds],
    params: SamplingParams,
    seeds: Sequence[int],
) -> Generator[tuple[int, Result], None, None]:
    """Decode all prompts, as many at a time as the decoder's engine takes.

    Yields (index of the prompt, result) as they end. Text comes only with stop strings: ids alone
    are faster. Everything is checked before any work. Raises PromptError for a prompt the target
    cannot continue, and OptionError for `n` or `logprobs`, which texts to learn from do not have.
    """
    require_bare(params)
    if not prompts:
        return
    requests = _requests(decoder, prompts, params, seeds)
    engine = decoder.engine
    check_request(requests[0], engine.target)  # they differ in their prompts alone
    for index, request in enumerate(requests):
        try:
            check_prompt(request.prompt_ids, engine.target)
        except PromptError as error:
            raise PromptError(f"prompt {index + 1}: {error}") from error
    engine.require_room(requests)
    collectors: dict[int, Collector] = {}
    with closing(engine.run(requests)) as run:
        for index, chunk, state in run:
            if index not in collectors:
                collectors[index] = Collector(requests[index].prompt_ids, requests[index].seed)
            collectors[index].add(chunk)
            if state.finish_reason is not None:
                yield index, collectors.pop(index).result(state.finish_reason, state.stats)


def require_bare(params: SamplingParams) -> None:
    """Raise OptionError for options that ask for more than one text with each prompt."""
    if params.n != 1:
        raise OptionError(f"n is {params.n}; each prompt is continued once")
    if params.logprobs is not None:
        raise OptionError(f"logprobs is {params.logprobs}; texts to learn from have none")


def _requests(
    decoder: Decoder,
    prompts: Sequence[TokenIds],
    params: SamplingParams,
    seeds: Sequence[int],
) -> list[Request]:
    model = decoder.loaded.model
    ending = eos_token_ids(getattr(model, "generation_config", None), model.config)
    return [
        Request(
            prompt_ids=tuple(prompt),
            params=replace(params, seed=seed),
            seed=seed,
            eos_token_ids=tuple(ending),
            tokenizer=decoder.tokenizer if params.stop else None,
            name=f"prompt {index}",
        )
        for index, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True), 1)
    ]


def describe_target(decoder: Decoder) -> dict[str, Any]:
    """Return, as plain values, what tells a target from others; not where and how it runs."""
    model = decoder.loaded.model
    return {
        "target": decoder.name,
        "architecture": type(model).__name__,
        "parameters": model.num_parameters(),
        "vocab_size": decoder.engine.target.vocab_size,
    }


def describe_params(params: SamplingParams) -> dict[str, Any]:
    """Return the options that differ from their defaults as plain values."""
    neutral = SamplingParams()
    values = {field.name: getattr(params, field.name) for field in fields(params)}
    return {
        name: _plain(value) for name, value in values.items() if value != getattr(neutral, name)
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        # -inf is no JSON.
        return {str(key): str(amount) for key, amount in sorted(value.items())}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if callable(value):
        return type(value).__qualname__
    return value
