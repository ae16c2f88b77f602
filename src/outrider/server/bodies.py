"""The bodies of requests, field by field as OpenAI has them, and the extensions.

A field that is not listed here is refused. Those in `refusals` are listed so that an official
client may send them, and are refused unless they ask for nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outrider.sampling.params import MAX_LOGPROBS
from outrider.server.content import Biases, Content, DraftLimit, Prompts, Stops
from outrider.server.errors import ApiError, invalid
from outrider.server.refusals import CHAT, COMPLETION, MESSAGE, Refusals, refuse
from outrider.server.settings import MOST_CHOICES
from outrider.types import Rule

Logprobs = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]


class Strict(BaseModel):
    """An object whose fields are all known and of the right type."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class StreamOptions(Strict):
    """How a stream is written."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class Prediction(Strict):
    """The output that is expected: it becomes a drafter."""

    type: Literal["content"]
    content: Content


class Speculation(Strict):
    """An extension: what a request says of its own speculation, within what the server does."""

    enabled: bool = True
    drafter: str | None = None
    max_draft: DraftLimit = None
    rule: Rule | None = None
    details: bool = False
    """Whether a stream tells of each piece of text where it came from."""


class Generation(Strict):
    """What both kinds of requests have."""

    refusals: ClassVar[Refusals] = {}
    default_max_tokens: ClassVar[int | None] = None

    model: str
    frequency_penalty: float | None = None
    logit_bias: Biases = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: Stops = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    # Extensions, by the names that other servers have for them.
    ignore_eos: bool | None = None
    min_p: float | None = None
    min_tokens: int | None = None
    prediction: Prediction | None = None
    repetition_penalty: float | None = None
    response_format: dict[str, Any] | None = None
    speculation: Speculation | None = None
    stop_token_ids: list[int] | None = None
    top_k: int | None = None

    @property
    def num_logprobs(self) -> int | None:
        """How many of the likeliest tokens come with each token; None for no log-probabilities."""
        raise NotImplementedError

    @property
    def client(self) -> str | None:
        """Whom the request is for, as far as it says."""
        return self.user

    @property
    def is_silent(self) -> bool:
        """Whether it asks for no token at all, but for what comes with its prompt."""
        return False

    @property
    def scores_prompt(self) -> bool:
        """Whether it asks for the log-probabilities of its prompt's own tokens."""
        return False

    def check(self) -> None:
        """Raise ApiError for fields that do not go together, or are not supported."""
        refuse(self.__dict__, self.refusals)
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options needs stream to be true", "stream_options")


class Completion(Generation):
    """A body of /v1/completions."""

    refusals: ClassVar[Refusals] = COMPLETION
    default_max_tokens: ClassVar[int | None] = 16

    max_tokens: Annotated[int, Field(ge=0)] | None = None
    prompt: Prompts
    best_of: int | None = None
    echo: bool | None = None
    logprobs: Logprobs | None = None
    suffix: Any = None

    @property
    def num_logprobs(self) -> int | None:
        """What `logprobs` says."""
        return self.logprobs

    @property
    def is_silent(self) -> bool:
        return self.max_tokens == 0

    @property
    def scores_prompt(self) -> bool:
        return bool(self.echo) and self.logprobs is not None

    def check(self) -> None:
        """Raise ApiError for fields that do not go together, or are not supported."""
        super().check()
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise invalid(
                "best_of is not supported; leave it out (or give what n says)",
                "best_of",
                "unsupported_field",
            )
        if self.is_silent and not self.echo:
            raise invalid(
                "max_tokens is 0, which needs echo: there is nothing to say", "max_tokens"
            )
        if self.is_silent and self.min_tokens:
            raise invalid(f"min_tokens is {self.min_tokens}, and max_tokens is 0", "min_tokens")


class Message(Strict):
    """A message of a chat."""

    role: Literal["developer", "system", "user", "assistant"]
    content: Content
    annotations: Any = None
    audio: Any = None
    function_call: Any = None
    name: Any = None
    refusal: Any = None
    tool_call_id: Any = None
    tool_calls: Any = None


class Chat(Generation):
    """A body of /v1/chat/completions."""

    refusals: ClassVar[Refusals] = CHAT

    messages: Annotated[list[Message], Field(min_length=1)]
    logprobs: bool | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    safety_identifier: str | None = None
    top_logprobs: Logprobs | None = None
    audio: Any = None
    function_call: Any = None
    functions: Any = None
    metadata: Any = None
    modalities: Any = None
    moderation: Any = None
    parallel_tool_calls: Any = None
    prompt_cache_key: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    reasoning_effort: Any = None
    service_tier: Any = None
    store: Any = None
    tool_choice: Any = None
    tools: Any = None
    verbosity: Any = None
    web_search_options: Any = None

    @property
    def num_logprobs(self) -> int | None:
        """What `logprobs` and `top_logprobs` say."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def client(self) -> str | None:
        """What `safety_identifier` says, or else the older `user`."""
        return self.safety_identifier or self.user

    def check(self) -> None:
        """Raise ApiError for fields that do not go together, or are not supported."""
        super().check()
        for place, message in enumerate(self.messages):
            refuse(message.__dict__, MESSAGE, f"messages[{place}].")
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs needs logprobs to be true", "top_logprobs")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise invalid(
                "max_tokens and max_completion_tokens mean the same; give one", "max_tokens"
            )


def parse(raw: bytes, kind: type[Generation]) -> Generation:
    """Read a body; raises ApiError with status 400, naming the first field that is wrong."""
    try:
        body = kind.model_validate_json(raw)
    except ValidationError as error:
        raise _first(error) from error
    body.check()
    return body


def _first(error: ValidationError) -> ApiError:
    fault = error.errors(include_url=False, include_context=False)[0]
    name = _path(fault["loc"])
    if fault["type"] == "json_invalid":
        return invalid(f"the body is no JSON: {fault['msg'].removeprefix('Invalid JSON: ')}")
    if fault["type"] == "extra_forbidden":
        return invalid(f"{name} is not a field this server knows", name, "unknown_field")
    if fault["type"] == "missing":
        return invalid(f"{name} is missing", name, "missing_field")
    message = fault["msg"].removeprefix("Value error, ")
    subject = name or "the body"
    return invalid(f"{subject}: {message[:1].lower()}{message[1:]}", name or None, "invalid_value")


def _path(place: tuple[int | str, ...]) -> str:
    """Return messages[0].content for ("messages", 0, "content"); what names a type is left out."""
    path = ""
    for part in place:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in ("int", "str", "none"):
            path += f".{part}" if path else part
    return path
