"""The library's front: load a model and a drafter, then generate, stream or batch."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from outrider.drafters import build_drafter
from outrider.drafters.base import Drafter
from outrider.drafters.spec import parse_spec
from outrider.engine.engine import Engine, check_engine_options
from outrider.engine.request import Request, check_request
from outrider.engine.result import Collector, Result
from outrider.engine.session import Session
from outrider.errors import OptionError, PromptError
from outrider.prompts import encode_prompt
from outrider.sampling.defaults import eos_token_ids, params_from_generation_config
from outrider.sampling.params import SamplingParams
from outrider.targets.loading import LoadedModel, load_model
from outrider.targets.transformers import TransformersTarget
from outrider.types import Chunk, Numerics, Rule

Prompt: TypeAlias = str | Sequence[int] | Sequence[Mapping[str, str]]


def load(
    target: str | PreTrainedModel,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    drafter: str | Drafter[Any] = "none",
    rule: Rule = "match",
    max_draft: int | None = None,
    max_batch: int = 8,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device | None = None,
    numerics: Numerics = "fast",
    trust_remote_code: bool = False,
) -> Decoder:
    """Load a target and a drafter.

    `target` is an alias ("smollm2-135m"), a hub id, a local folder, a .gguf file, or a loaded
    Transformers model (then pass its `tokenizer`; the model is not changed). `drafter` is "none",
    "ngram", "suffix", "prediction" (given with each request) or "prediction:FILE",
    "model:ID_OR_PATH", or an object of your own. Raises LoadError, UnsupportedModelError,
    VocabularyMismatchError or OptionError.
    """
    if numerics not in ("fast", "invariant"):
        raise OptionError(f"numerics is {numerics!r}; it must be 'fast' or 'invariant'")
    check_engine_options(rule, max_draft, max_batch)
    if not isinstance(drafter, str | Drafter):
        raise OptionError(f"drafter is {drafter!r}; it must be a spec (text) or a Drafter object")
    # What can be refused is refused before a model is read.
    spec = parse_spec(drafter) if isinstance(drafter, str) else None
    prediction = None
    if spec is not None and spec.kind == "prediction" and spec.argument is not None:
        prediction = _read_prediction(spec.argument)
    options: dict[str, Any] = {"device": device, "trust_remote_code": trust_remote_code}
    loaded = load_model(target, tokenizer=tokenizer, dtype=dtype, **options)
    model_target = TransformersTarget(loaded.model, numerics=numerics)
    built = None if isinstance(drafter, str) else drafter
    if spec is not None:
        built = build_drafter(spec, loaded, model_target.vocab_size, **options)
    engine = Engine(model_target, built, rule=rule, max_draft=max_draft, max_batch=max_batch)
    return Decoder(engine, loaded, prediction=prediction)


class Stream:
    """An iterator over the chunks of one request; `result` is there once it is exhausted."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self._run = engine.run([request])
        self._collector = Collector(request.prompt_ids, request.seed)
        self._result: Result | None = None

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        _, chunk, state = next(self._run)
        self._collector.add(chunk)
        if state.finish_reason is not None:
            self._result = self._collector.result(state.finish_reason, state.stats)
        return chunk

    @property
    def result(self) -> Result:
        """The whole answer; only after the last chunk."""
        if self._result is None:
            raise RuntimeError("the stream has not ended: take all its chunks first")
        return self._result

    def close(self) -> None:
        """Stop early: the work ends and what it held is freed."""
        self._run.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Decoder:
    """A target and a drafter, ready to write text."""

    def __init__(
        self, engine: Engine, loaded: LoadedModel, *, prediction: str | None = None
    ) -> None:
        self.engine = engine
        self._default_prediction = prediction
        self.name = loaded.name
        self.tokenizer = loaded.tokenizer
        self._loaded = loaded
        generation_config = getattr(loaded.model, "generation_config", None)
        self.default_params: SamplingParams = params_from_generation_config(generation_config)
        self._eos_token_ids = tuple(eos_token_ids(generation_config, loaded.model.config))

    def without_drafter(self) -> Decoder:
        """Return plain decoding with the same target."""
        engine = Engine(self.engine.target, max_batch=self.engine.max_batch)
        return Decoder(engine, self._loaded)

    def encode(self, prompt: Prompt, *, chat: bool = False) -> tuple[int, ...]:
        """Return the ids a prompt stands for; `chat` wraps text as a user's message."""
        return encode_prompt(prompt, self.tokenizer, chat=chat)

    def session(self) -> Session:
        """Open a conversation whose turns share one cache."""
        return Session(self.engine.target)

    def generate(
        self,
        prompt: Prompt,
        *,
        chat: bool = False,
        params: SamplingParams | None = None,
        prediction: str | Sequence[int] | None = None,
        session: Session | None = None,
        **options: Any,
    ) -> Result:
        """Write the answer to a prompt (text, token ids or chat messages).

        `options` are fields of SamplingParams on top of `params`, or of the model's own defaults
        where no `params` are given. With `n` > 1 the result carries all `choices`. Raises
        PromptError, OptionError, NumericsError.
        """
        wanted = self._params(params, options)
        if session is not None and wanted.n > 1:
            raise OptionError(f"n is {wanted.n}; a session holds one conversation")
        request = self._request(prompt, wanted, chat, prediction, session)
        results = self._collect([_choice(request, index) for index in range(wanted.n)])
        return results[0].with_choices(results) if wanted.n > 1 else results[0]

    def stream(
        self,
        prompt: Prompt,
        *,
        chat: bool = False,
        params: SamplingParams | None = None,
        prediction: str | Sequence[int] | None = None,
        session: Session | None = None,
        **options: Any,
    ) -> Stream:
        """Write the answer chunk by chunk, one a round; arguments as for `generate`, n = 1."""
        wanted = self._params(params, options)
        if wanted.n > 1:
            raise OptionError(f"n is {wanted.n}; a stream carries one answer")
        return Stream(self.engine, self._request(prompt, wanted, chat, prediction, session))

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        chat: bool = False,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        predictions: Sequence[str | Sequence[int] | None] | None = None,
        **options: Any,
    ) -> list[Result]:
        """Write answers to many prompts together, each with its own options and seed.

        `params` is one for all or one a prompt. All prompts are checked before any work.
        """
        shared = params is None or isinstance(params, SamplingParams)
        given = [params] * len(prompts) if shared else list(params)  # type: ignore[arg-type]
        hints = [None] * len(prompts) if predictions is None else list(predictions)
        for name, items in (("params", given), ("predictions", hints)):
            if len(items) != len(prompts):
                raise OptionError(f"{len(items)} {name} for {len(prompts)} prompts")
        requests: list[Request] = []
        counts: list[int] = []
        for index, (prompt, own, hint) in enumerate(zip(prompts, given, hints, strict=True)):
            wanted = self._params(own, options)  # type: ignore[arg-type]
            request = self._request(prompt, wanted, chat, hint, None, name=f"request {index}")
            requests.extend(_choice(request, choice) for choice in range(wanted.n))
            counts.append(wanted.n)
        results = iter(self._collect(requests))
        groups = [[next(results) for _ in range(count)] for count in counts]
        return [g[0].with_choices(g) if len(g) > 1 else g[0] for g in groups]

    def _collect(self, requests: Sequence[Request]) -> list[Result]:
        collectors = [Collector(request.prompt_ids, request.seed) for request in requests]
        results: dict[int, Result] = {}
        for index, chunk, state in self.engine.run(requests):
            collectors[index].add(chunk)
            if state.finish_reason is not None:
                results[index] = collectors[index].result(state.finish_reason, state.stats)
        return [results[index] for index in range(len(requests))]

    def _params(self, params: SamplingParams | None, options: Mapping[str, Any]) -> SamplingParams:
        base = self.default_params if params is None else params
        if not isinstance(base, SamplingParams):
            raise OptionError(f"params is {base!r}; it must be SamplingParams")
        return base.with_options(**options) if options else base

    def _request(
        self,
        prompt: Prompt,
        params: SamplingParams,
        chat: bool,
        prediction: str | Sequence[int] | None,
        session: Session | None,
        name: str = "request",
    ) -> Request:
        prompt_ids = self.encode(prompt, chat=chat)
        request = Request(
            prompt_ids=prompt_ids,
            params=params,
            seed=secrets.randbits(63) if params.seed is None else params.seed,
            eos_token_ids=self._eos_token_ids,
            tokenizer=self.tokenizer,
            prediction_ids=self._prediction_ids(prediction),
            session=session,
            name=name,
        )
        check_request(request, self.engine.target)
        return request

    def _prediction_ids(self, prediction: str | Sequence[int] | None) -> tuple[int, ...] | None:
        prediction = self._default_prediction if prediction is None else prediction
        wants_one = self.engine.drafter is not None and self.engine.drafter.needs_prediction
        if prediction is None:
            if wants_one:
                raise OptionError("the prediction drafter needs a prediction of the output")
            return None
        if not isinstance(prediction, str):
            return tuple(prediction)
        if self.tokenizer is None:
            raise PromptError("a prediction in text needs a tokenizer: pass token ids")
        return tuple(self.tokenizer.encode(prediction, add_special_tokens=False))


def _choice(request: Request, index: int) -> Request:
    params = request.params
    if params.n == 1:
        return request
    seeded = replace(params, seed=request.seed).for_choice(index)
    assert seeded.seed is not None
    return replace(request, params=seeded, seed=seeded.seed)


def _read_prediction(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the prediction file {path!r} cannot be read: {error}") from error
