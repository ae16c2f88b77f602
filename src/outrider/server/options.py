"""From a body's fields to sampling options, and to what a request says of its own speculation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from outrider.engine.request import Request
from outrider.errors import OptionError
from outrider.sampling.params import SamplingParams
from outrider.server.bodies import Chat, Generation, Speculation
from outrider.server.deltas import PREDICTION
from outrider.server.errors import ApiError, invalid
from outrider.server.response_format import parse_response_format
from outrider.server.settings import ServerSettings
from outrider.types import Rule

_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repetition_penalty",
    "logit_bias": "logit_bias",
    "stop": "stop",
    "stop_token_ids": "stop_token_ids",
    "ignore_eos": "ignore_eos",
    "seed": "seed",
    "n": "n",
    "min_tokens": "min_new_tokens",
}
"""Field of a body -> the option it stands for."""


def sampling_params(
    body: Generation, defaults: SamplingParams, settings: ServerSettings
) -> SamplingParams:
    """Return the options of a request, `defaults` where it says nothing.

    Raises ApiError with status 400, naming the field.
    """
    most = _max_tokens(body, settings)
    # A model that asks for more tokens than a request allows has no say in it.
    least = min(defaults.min_new_tokens, most)
    params = defaults.with_options(
        max_new_tokens=most, min_new_tokens=least, logprobs=body.num_logprobs, n=1
    )
    values = {field: getattr(body, field) for field in _OPTIONS}
    params = _with_fields(params, {f: value for f, value in values.items() if value is not None})
    return params.with_options(grammar=_grammar(body)) if body.response_format else params


def _max_tokens(body: Generation, settings: ServerSettings) -> int:
    name, wanted = "max_tokens", body.max_tokens
    if isinstance(body, Chat) and body.max_completion_tokens is not None:
        name, wanted = "max_completion_tokens", body.max_completion_tokens
    limit = settings.max_new_tokens
    if wanted is None:
        return min(limit, body.default_max_tokens or limit)
    if wanted > limit:
        raise invalid(f"{name} is {wanted}; this server allows at most {limit}", name)
    return max(1, wanted)  # a request that asks for none gets one from the engine, and keeps it


def _with_fields(params: SamplingParams, values: Mapping[str, Any]) -> SamplingParams:
    """Set options by the names of fields; raises ApiError for the first that is out of range."""
    try:
        return params.with_options(**{_OPTIONS[field]: value for field, value in values.items()})
    except OptionError:
        for field, value in values.items():
            params = _with_field(params, field, value)
        return params


def _with_field(params: SamplingParams, field: str, value: Any) -> SamplingParams:
    option = _OPTIONS[field]
    try:
        return params.with_options(**{option: value})
    except OptionError as error:
        message = str(error).replace("max_new_tokens", "max_tokens")
        raise invalid(message.replace(option, field, 1), field, "invalid_value") from error


def _grammar(body: Generation) -> Any:
    try:
        return parse_response_format(body.response_format)
    except OptionError as error:
        raise invalid(str(error), "response_format", "invalid_value") from error


@dataclass(frozen=True, slots=True)
class SpeculationChoice:
    """What a request says of its own speculation, by the names the engine has."""

    speculate: bool = True
    max_draft: int | None = None
    drafters: tuple[str, ...] | None = None
    rule: Rule | None = None
    details: bool = False

    @property
    def takes_the_servers_rule(self) -> bool:
        """Whether there are drafts to verify, and no rule of its own to verify them."""
        return self.speculate and self.rule is None

    def applied(self, request: Request) -> Request:
        """Return a request that says so."""
        return replace(
            request,
            speculate=self.speculate,
            max_draft=self.max_draft,
            drafters=self.drafters if self.speculate else None,
            rule=self.rule,
        )


def speculation(body: Generation, drafters: Sequence[str]) -> SpeculationChoice:
    """Read `speculation` and `prediction`, for an engine with these drafters.

    Raises ApiError with status 400, naming the field.
    """
    asked = body.speculation or Speculation()
    names = _names(asked.drafter, drafters)
    choice = SpeculationChoice(
        speculate=asked.enabled and names != (),
        max_draft=asked.max_draft,
        drafters=names,
        rule=asked.rule,
        details=asked.details,
    )
    if asked.details and not body.stream:
        raise invalid("speculation.details needs stream to be true", "speculation.details")
    if body.prediction is not None:
        _require_prediction(choice, drafters)
    return choice


def _names(text: str | None, drafters: Sequence[str]) -> tuple[str, ...] | None:
    if text is None:
        return None
    if text == "none":
        return ()
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in drafters:
            raise _unknown_drafter(name, drafters)
    return names


def _unknown_drafter(name: str, drafters: Sequence[str]) -> ApiError:
    known = ", ".join(["none", *drafters])
    message = f"speculation.drafter names {name!r}; this server has {known}"
    return invalid(message, "speculation.drafter", "invalid_value")


def _require_prediction(choice: SpeculationChoice, drafters: Sequence[str]) -> None:
    if PREDICTION not in drafters:
        raise invalid("prediction needs a server that drafts; this one was told not to", PREDICTION)
    is_named = choice.drafters is None or PREDICTION in choice.drafters
    if not choice.speculate or choice.max_draft == 0 or not is_named:
        raise invalid("prediction is a draft, and speculation switches it off", PREDICTION)
