"""From a body to the requests of the engine: one for each answer it asks for."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from outrider.engine.request import Request
from outrider.engine.scoring import PromptScores
from outrider.errors import OptionError, PromptError
from outrider.prompts import encode_prompt
from outrider.sampling.params import SamplingParams
from outrider.server.bodies import Chat, Completion, Generation, Message
from outrider.server.echo import Echo, echo_of
from outrider.server.errors import ApiError, invalid
from outrider.server.options import SpeculationChoice, sampling_params, speculation
from outrider.server.settings import MOST_CHOICES, ServerSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from outrider.decoder import Decoder

_ROLES = {"developer": "system"}  # the same by its newer name, which templates do not know

_FIELDS = {
    "grammar": "response_format",
    "max_draft": "speculation.max_draft",
    "rule": "speculation.rule",
}
"""What the engine speaks of -> the field that a client knows it by."""

_SILENT = SamplingParams(max_new_tokens=1)
"""For requests that ask for no token: the engine's one is not told, so no option matters."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What one HTTP request asks for: so many answers to each of its prompts."""

    body: Generation
    requests: tuple[Request, ...]
    """The answers to the first prompt, then those to the second, and so on."""
    answers_each: int
    details: bool
    echoes: tuple[Echo, ...] = ()
    """The prompts, if answers begin with them."""
    client: Hashable = None
    """Whose turn in the queue it uses up."""
    lossy: str | None = None
    """The lossy rule that verifies its drafts, if one does: every object of its answers says so."""


class Preparer:
    """Turns bodies into jobs, in any thread; holds no state but a tokenizer of its own."""

    def __init__(self, decoder: Decoder, settings: ServerSettings) -> None:
        self._decoder = decoder
        self._settings = settings
        # Encoding changes settings inside a tokenizer, which the worker decodes with meanwhile.
        self._tokenizer: PreTrainedTokenizerBase | None = deepcopy(decoder.tokenizer)
        self._lock = threading.Lock()
        self.drafters = tuple(decoder.engine.to_profile()["drafters"])
        """The names of the engine's drafters."""

    def warm_up(self) -> None:
        """Prepare a request of each kind: whatever is done once is done before a client waits."""
        head: dict[str, Any] = {"model": self._settings.model, "max_tokens": 1}
        for body in (
            Completion.model_validate(head | {"prompt": [0]}),
            Completion.model_validate(head | {"prompt": "Hello."}),
            Chat.model_validate(head | {"messages": [{"role": "user", "content": "Hello."}]}),
        ):
            with suppress(ApiError):  # there may be no tokenizer, or a template that refuses
                self.prepare(body, request_id="warm-up")

    @property
    def lossy(self) -> str | None:
        """The lossy rule that the server was started with, None unless it was."""
        rule = self._decoder.engine.lossy
        return None if rule is None else str(rule)

    @property
    def most_answers(self) -> int:
        """How many answers one request may ask for: more than can wait and run never fit."""
        return min(MOST_CHOICES, self._settings.max_queue + self._decoder.engine.max_batch)

    @property
    def description(self) -> dict[str, Any]:
        """What a client may want to know of the model and how it is run, ready for JSON."""
        engine = self._decoder.engine
        return {
            "drafters": list(self.drafters),
            "rule": engine.rule if self.lossy is None else None,
            "lossy": self.lossy,
            "max_draft": engine.max_draft,
            "context_length": engine.target.max_positions,
            "max_new_tokens": self._settings.max_new_tokens,
            "has_chat_template": bool(getattr(self._tokenizer, "chat_template", None)),
        }

    def prepare(self, body: Generation, *, request_id: str, client: Hashable = None) -> Job:
        """Encode the prompts of a body and check all that it asks for.

        Raises ApiError with status 400.
        """
        params = sampling_params(body, self._decoder.default_params, self._settings)
        choice = speculation(body, self.drafters)
        answers_each = params.n
        prompts = body.prompt if isinstance(body, Completion) else ("",)
        if len(prompts) * answers_each > self.most_answers:
            raise invalid(
                f"{len(prompts)} prompts with n = {answers_each} ask for more than "
                f"{self.most_answers} answers",
                "n",
            )
        encoded = [self._encode(body, prompt) for prompt in prompts]
        params = _SILENT.with_options(n=answers_each) if body.is_silent else self._bound(params)
        prediction = self._prediction(body)
        each = [
            request
            for place, ids in enumerate(encoded)
            for request in self._requests(ids, params, choice, prediction, f"{request_id}-{place}")
        ]
        if body.scores_prompt:
            top = body.num_logprobs or 0
            each = [replace(request, scores=PromptScores(top)) for request in each]
        echoes = self._echoes(prompts, encoded) if _wants_echo(body) else ()
        lossy = self.lossy if choice.takes_the_servers_rule else None
        return Job(body, tuple(each), answers_each, choice.details, echoes, client, lossy)

    def _encode(self, body: Generation, prompt: str | tuple[int, ...]) -> tuple[int, ...]:
        name = "messages" if isinstance(body, Chat) else "prompt"
        try:
            with self._lock:
                if isinstance(body, Chat):
                    return self._limited(self._encode_chat(body.messages), name)
                return self._limited(encode_prompt(prompt, self._tokenizer), name)
        except PromptError as error:
            raise invalid(str(error), name, "invalid_value") from error

    def _encode_chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        from jinja2 import TemplateError  # comes with Transformers' own templates

        said = [{"role": _ROLES.get(m.role, m.role), "content": m.content} for m in messages]
        try:
            return encode_prompt(said, self._tokenizer)
        except TemplateError as error:
            raise PromptError(f"the model's chat template refuses the messages: {error}") from error

    def _limited(self, ids: tuple[int, ...], name: str) -> tuple[int, ...]:
        most = self._settings.max_prompt_tokens
        if most is not None and len(ids) > most:
            message = f"the prompt has {len(ids)} tokens; this server allows at most {most}"
            raise invalid(message, name, "context_length_exceeded")
        if len(ids) >= self._decoder.engine.target.max_positions:
            message = (
                f"the prompt has {len(ids)} tokens; the model holds "
                f"{self._decoder.engine.target.max_positions} in all"
            )
            raise invalid(message, name, "context_length_exceeded")
        return ids

    def _bound(self, params: SamplingParams) -> SamplingParams:
        try:
            return params.for_tokenizer(self._tokenizer)
        except OptionError as error:
            raise invalid(str(error), "response_format", "invalid_value") from error

    def _prediction(self, body: Generation) -> tuple[int, ...] | None:
        if body.prediction is None:
            return None
        if self._tokenizer is None:
            raise invalid("prediction needs a tokenizer, and the model has none", "prediction")
        with self._lock:
            text = body.prediction.content
            return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _echoes(
        self, prompts: Sequence[str | tuple[int, ...]], encoded: Sequence[tuple[int, ...]]
    ) -> tuple[Echo, ...]:
        with self._lock:
            return tuple(
                echo_of(prompt, ids, self._tokenizer)
                for prompt, ids in zip(prompts, encoded, strict=True)
            )

    def _requests(
        self,
        ids: tuple[int, ...],
        params: SamplingParams,
        choice: SpeculationChoice,
        prediction: tuple[int, ...] | None,
        name: str,
    ) -> list[Request]:
        """Return the requests for the answers to one prompt, which the engine would take."""
        try:
            plain = self._decoder.requests(ids, params=params, prediction=prediction, name=name)
            requests = [choice.applied(request) for request in plain]
            self._decoder.engine.check_speculation(requests[0])
        except PromptError as error:  # a chat's ids are the tokenizer's: they are never wrong
            raise invalid(str(error), "prompt", "invalid_value") from error
        except OptionError as error:
            raise _named(str(error)) from error
        return requests


def _named(message: str) -> ApiError:
    """Return the error of a request that the engine refuses; its first word may be a field."""
    word = message.partition(" ")[0].rstrip(":")
    field = _FIELDS.get(word, word if word in Chat.model_fields else None)
    return invalid(message, field, "invalid_value")


def _wants_echo(body: Generation) -> bool:
    return isinstance(body, Completion) and bool(body.echo)
