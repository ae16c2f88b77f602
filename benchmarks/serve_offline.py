"""What the library says, alone and without drafts, to what a client asked of the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.decoder import Decoder
from outrider.server.response_format import parse_response_format

_OPTIONS = {
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    **{
        name: name
        for name in (
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "stop",
            "stop_token_ids",
            "ignore_eos",
            "seed",
            "n",
        )
    },
}


@dataclass(frozen=True, slots=True)
class Said:
    """One answer: its text, why it ended, and its tokens' log-probabilities if they are wanted."""

    text: str
    finish_reason: str
    logprobs: tuple[float, ...] | None = None


def answers_offline(decoder: Decoder, body: Mapping[str, Any]) -> tuple[list[Said], int]:
    """Return the answers that a request must get, in their order, and their tokens in all.

    `decoder` decodes plainly, each prompt in a batch of its own.
    """
    found: list[Said] = []
    tokens = 0
    for prompt in _prompts(body):
        if body.get("max_tokens") == 0:
            found += [Said(_echo(decoder, prompt), "length")] * body.get("n", 1)
            continue
        result = decoder.generate(prompt, **_options(decoder, body))
        for choice in result.choices or (result,):
            before = _echo(decoder, prompt) if body.get("echo") else ""
            logprobs = choice.logprobs
            values = None if logprobs is None else tuple(record.chosen for record in logprobs)
            found.append(Said(before + choice.text, choice.finish_reason, values))
            tokens += len(choice.tokens)
    return found, tokens


def _prompts(body: Mapping[str, Any]) -> Sequence[Any]:
    if "messages" in body:
        return [[_message(message) for message in body["messages"]]]
    prompt = body["prompt"]
    is_one = isinstance(prompt, str) or isinstance(prompt[0], int)
    return [prompt] if is_one else list(prompt)


def _message(message: Mapping[str, Any]) -> dict[str, str]:
    content = message["content"]
    if not isinstance(content, str):
        content = "".join(part["text"] for part in content)
    return {"role": message["role"], "content": content}


def _options(decoder: Decoder, body: Mapping[str, Any]) -> dict[str, Any]:
    options = {_OPTIONS[name]: value for name, value in body.items() if name in _OPTIONS}
    if "logit_bias" in body:
        options["logit_bias"] = {int(token): bias for token, bias in body["logit_bias"].items()}
    if body.get("logprobs") not in (None, False):
        options["logprobs"] = 0
    if "response_format" in body:
        options["grammar"] = parse_response_format(body["response_format"])
    return options


def _echo(decoder: Decoder, prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    assert decoder.tokenizer is not None
    return str(decoder.tokenizer.decode(list(prompt), clean_up_tokenization_spaces=False))
