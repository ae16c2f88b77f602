"""A target with its drafters, ready to generate, stream or batch."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from outrider.drafters.base import Drafter
from outrider.engine.engine import Engine
from outrider.engine.request import Request, check_request
from outrider.engine.result import Collector, Result
from outrider.engine.session import Session
from outrider.errors import OptionError, PromptError
from outrider.listening import Listener, SpeechOptions
from outrider.profile import Profile
from outrider.prompts import encode_prompt
from outrider.sampling.defaults import eos_token_ids, params_from_generation_config
from outrider.sampling.params import SamplingParams
from outrider.speech.sound import Audio
from outrider.stream import Stream
from outrider.targets.loading import LoadedModel
from outrider.types import EncoderInput, LossyRule, Rule

Prompt: TypeAlias = str | Sequence[int] | Sequence[Mapping[str, str]] | Audio
"""Text, token ids, chat messages; or what a speech model hears."""


class Decoder:
    """A target and its drafters, ready to write text."""

    def __init__(
        self,
        engine: Engine,
        loaded: LoadedModel,
        *,
        specs: Mapping[Drafter[Any], str] | None = None,
        prediction: str | None = None,
        profile: Profile | None = None,
    ) -> None:
        """`specs` are the words that drafters were chosen with, those of one's own aside."""
        self.engine = engine
        self.loaded = loaded
        self.specs = dict(specs or {})
        self.profile = profile
        self.name = loaded.name
        self.tokenizer = loaded.tokenizer
        self._default_prediction = prediction
        generation_config = getattr(loaded.model, "generation_config", None)
        target = engine.target
        self._listener = Listener.of(target)
        self.default_params: SamplingParams = params_from_generation_config(
            generation_config,
            reads_input=target.reads_input,
            speech_tokens=target.max_positions if target.reads_audio else None,
        )
        self._eos_token_ids = tuple(eos_token_ids(generation_config, loaded.model.config))

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The token ids that end a text."""
        return self._eos_token_ids

    def without_drafter(self) -> Decoder:
        """Return plain decoding with the same target."""
        return self.using(())

    def using(
        self,
        drafters: Sequence[Drafter[Any]],
        *,
        rule: Rule = "match",
        lossy: LossyRule | None = None,
        max_draft: int | Literal["auto"] = "auto",
        profile: Mapping[str, Any] | None = None,
    ) -> Decoder:
        """Return a decoder of the same target with other drafters, and a rule, or a lossy one.

        It begins with what `profile` (as of `Engine.to_profile`) or else this decoder's own
        profile knows of their costs; where there is none, both learn the target's together.
        """
        known = self._known(drafters) if profile is None else profile
        engine = Engine(
            self.engine.target,
            drafters,
            rule=rule,
            lossy=lossy,
            max_draft=max_draft,
            max_batch=self.engine.max_batch,
            costs=self.engine.costs if known is None else None,
            profile=known,
        )
        return Decoder(
            engine,
            self.loaded,
            specs=self.specs,
            prediction=self._default_prediction,
            profile=self.profile,
        )

    def encode(self, prompt: Prompt, *, chat: bool = False) -> tuple[int, ...]:
        """Return the ids a prompt stands for; `chat` wraps text as a user's message."""
        self.require_text()
        return encode_prompt(prompt, self.tokenizer, chat=chat)

    def require_text(self) -> None:
        """Raise PromptError for a speech model, where prompts of text are to be put."""
        if self._listener is not None:
            raise PromptError(f"{self.name} hears recordings: no prompts of text can be put to it")

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
        language: str | None = None,
        task: str | None = None,
        **options: Any,
    ) -> Result:
        """Write the answer to a prompt (text, token ids or chat messages).

        `options` are fields of SamplingParams on top of `params`, or of the model's own defaults
        where no `params` are given. With `n` > 1 the result carries all `choices`. Raises
        PromptError, OptionError, NumericsError.

        To a speech model the prompt is a recording: the path of a WAV file, floating-point samples
        [n] at the model's rate, or a mapping from "array" to samples and from "sampling_rate" to
        theirs. `language` ("de" or "german") is the one spoken, heard if None; `task` is
        "transcribe" or "translate".
        """
        wanted = self._params(params, options)
        if session is not None and wanted.n > 1:
            raise OptionError(f"n is {wanted.n}; a session holds one conversation")
        speech = SpeechOptions(language, task)
        request = self._request(prompt, wanted, chat, prediction, session, speech=speech)
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
        language: str | None = None,
        task: str | None = None,
        **options: Any,
    ) -> Stream:
        """Write the answer chunk by chunk, one a round; arguments as for `generate`, n = 1."""
        wanted = self._params(params, options)
        if wanted.n > 1:
            raise OptionError(f"n is {wanted.n}; a stream carries one answer")
        speech = SpeechOptions(language, task)
        request = self._request(prompt, wanted, chat, prediction, session, speech=speech)
        return Stream(self.engine, self._ready([request])[0])

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        chat: bool = False,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        predictions: Sequence[str | Sequence[int] | None] | None = None,
        language: str | None = None,
        task: str | None = None,
        **options: Any,
    ) -> list[Result]:
        """Write answers to many prompts together, each with its own options and seed.

        `params` is one for all or one a prompt, `language` and `task` one for all. All prompts are
        checked before any work.
        """
        shared = params is None or isinstance(params, SamplingParams)
        given = [params] * len(prompts) if shared else list(params)  # type: ignore[arg-type]
        hints = [None] * len(prompts) if predictions is None else list(predictions)
        for name, items in (("params", given), ("predictions", hints)):
            if len(items) != len(prompts):
                raise OptionError(f"{len(items)} {name} for {len(prompts)} prompts")
        requests: list[Request] = []
        counts: list[int] = []
        speech = SpeechOptions(language, task)
        for index, (prompt, own, hint) in enumerate(zip(prompts, given, hints, strict=True)):
            wanted = self._params(own, options)  # type: ignore[arg-type]
            request = self._request(
                prompt, wanted, chat, hint, None, name=f"request {index}", speech=speech
            )
            requests.extend(_choice(request, choice) for choice in range(wanted.n))
            counts.append(wanted.n)
        results = iter(self._collect(requests))
        groups = [[next(results) for _ in range(count)] for count in counts]
        return [g[0].with_choices(g) if len(g) > 1 else g[0] for g in groups]

    def requests(
        self,
        prompt: Prompt,
        *,
        chat: bool = False,
        params: SamplingParams | None = None,
        prediction: str | Sequence[int] | None = None,
        name: str = "request",
        language: str | None = None,
        task: str | None = None,
        **options: Any,
    ) -> list[Request]:
        """Return what `engine.scheduler()` takes for a prompt: a request for each of `n` choices.

        Arguments as for `generate`, and all is checked; a prediction may be missing, whatever the
        drafters. Errors call the request by its `name`. What a request has to say of speculation,
        `dataclasses.replace` puts in. Raises PromptError, OptionError.
        """
        wanted = self._params(params, options)
        speech = SpeechOptions(language, task)
        request = self._request(
            prompt, wanted, chat, prediction, None, name=name, needs_prediction=False, speech=speech
        )
        return self._settled([_choice(request, index) for index in range(wanted.n)])

    def _known(self, drafters: Sequence[Drafter[Any]]) -> dict[str, Any] | None:
        """Return what the profile knows of these drafters, by the names an engine gives them."""
        if self.profile is None:
            return None
        names = Engine(self.engine.target, drafters).to_profile()["drafters"]
        specs = [self.specs.get(drafter) for drafter in drafters]
        return self.profile.for_drafters(dict(zip(names, specs, strict=True)))

    def _ready(self, requests: Sequence[Request]) -> list[Request]:
        """Return requests that may run, once there is room for them."""
        self.engine.require_room(requests)
        return self._settled(requests)

    def _settled(self, requests: Sequence[Request]) -> list[Request]:
        return list(requests) if self._listener is None else self._listener.settled(requests)

    def _collect(self, requests: Sequence[Request]) -> list[Result]:
        requests = self._ready(requests)
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
        *,
        speech: SpeechOptions,
        needs_prediction: bool = True,
    ) -> Request:
        target = self.engine.target
        prompt_ids, given = self._begun(prompt, chat, speech)
        request = Request(
            prompt_ids=prompt_ids,
            input=given,
            params=params.for_tokenizer(self.tokenizer),
            seed=secrets.randbits(63) if params.seed is None else params.seed,
            eos_token_ids=self._eos_token_ids,
            tokenizer=self.tokenizer,
            prediction_ids=self._prediction_ids(prediction, is_needed=needs_prediction),
            session=session,
            name=name,
        )
        check_request(request, target)
        return request

    def _begun(
        self, prompt: Prompt, chat: bool, speech: SpeechOptions
    ) -> tuple[tuple[int, ...], EncoderInput | None]:
        """Return what a text begins with, and what an encoder reads, which is no part of it."""
        if self._listener is not None:
            recording = self._listener.recording(prompt, speech, chat=chat)
            return self._listener.opening(recording), recording
        if speech.are_given:
            raise OptionError(f"{speech}: {self.name} hears no speech")
        ids = self.encode(prompt, chat=chat)
        target = self.engine.target
        return (target.prompt_ids, ids) if target.reads_input else (ids, None)

    def _prediction_ids(
        self, prediction: str | Sequence[int] | None, *, is_needed: bool = True
    ) -> tuple[int, ...] | None:
        prediction = self._default_prediction if prediction is None else prediction
        wants_one = any(drafter.needs_prediction for drafter in self.engine.drafters)
        if prediction is None:
            if wants_one and is_needed:
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
