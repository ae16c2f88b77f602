"""From what a user passes as a prompt to token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from outrider.errors import PromptError

_KINDS = "neither a text, nor a sequence of token ids (int), nor a sequence of messages (mapping)"


def encode_prompt(
    prompt: object,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    chat: bool = False,
) -> tuple[int, ...]:
    """Turn text, chat messages or token ids into ids; `chat` wraps text as a user's message.

    Raises PromptError for an empty prompt, a kind it does not know, text without a tokenizer, and
    chat without a chat template.
    """
    if isinstance(prompt, str):
        if not prompt:
            raise PromptError("the prompt is empty: there is nothing to continue")
        if chat:
            return _encode_chat([{"role": "user", "content": prompt}], tokenizer)
        return _encode_text(prompt, tokenizer)
    if isinstance(prompt, bytes) or not isinstance(prompt, Sequence):
        raise PromptError(f"a prompt of type {type(prompt).__name__} is {_KINDS}")
    items = list(prompt)
    if not items:
        raise PromptError("the prompt is empty: there is nothing to continue")
    if all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        if chat:
            raise PromptError("chat=True needs text or messages; token ids are used as they are")
        return tuple(cast("list[int]", items))
    if all(isinstance(item, Mapping) for item in items):
        return _encode_chat(cast("list[Mapping[str, str]]", items), tokenizer)
    raise PromptError(f"the prompt is {_KINDS}")


def _encode_text(text: str, tokenizer: PreTrainedTokenizerBase | None) -> tuple[int, ...]:
    if tokenizer is None:
        raise PromptError("a prompt in text needs a tokenizer: pass one, or token ids")
    encoded: Any = tokenizer(text)
    ids: list[int] = encoded["input_ids"]
    if not ids:
        raise PromptError("the prompt has no tokens: there is nothing to continue")
    return tuple(ids)


def _encode_chat(
    messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase | None
) -> tuple[int, ...]:
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        raise PromptError("the model has no chat template: pass plain text, or token ids")
    for message in messages:
        if not {"role", "content"} <= set(message):
            raise PromptError(f"a message needs a role and a content; got {sorted(message)}")
    encoded: Any = tokenizer.apply_chat_template(
        [dict(message) for message in messages],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
    )
    return tuple(encoded["input_ids"])
