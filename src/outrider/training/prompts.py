"""What there is to learn from: prompts for the target to answer, and texts others wrote."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from transformers import PreTrainedTokenizerBase

from outrider.errors import OptionError, PromptError
from outrider.prompts import encode_prompt
from outrider.training.base import Sample
from outrider.types import TokenIds
from outrider.workload.files import read_workload

Conversation: TypeAlias = tuple[Mapping[str, str], ...]
"""Messages with a role and a content each, of which the last is the user's."""

TEXT_SUFFIXES = (".jsonl", ".md", ".py", ".rst", ".txt")
"""The files of a folder that are read; one that is named itself may be called anything."""

_LOGGER = logging.getLogger("outrider")


def read_prompts(path: Path) -> list[Conversation]:
    """Read the prompts of a JSONL file.

    A line holds a `prompt` (a text), `messages` (a role and a content each) or `turns` (texts of
    the user). Of turns the first alone is asked: the later ones were written for answers that are
    not the target's. For the same reason messages end with the last that the user wrote. Raises
    OptionError, with file and line, for a line of another kind and for a file without any.
    """
    found: list[Conversation] = []
    for prompt in read_workload(path):
        messages = prompt.prompt
        if isinstance(messages, str):
            messages = ({"role": "user", "content": messages},)
        asked = [place for place, message in enumerate(messages) if message["role"] == "user"]
        if not asked:
            raise OptionError(f"{path}: prompt {prompt.id} holds no message of the user's")
        found.append(messages[: asked[-1] + 1])
    return found


def encode_conversation(
    conversation: Conversation, tokenizer: PreTrainedTokenizerBase | None
) -> tuple[int, ...]:
    """Return the ids after which the answer begins, as serving would have them.

    A model without a chat template continues a lone message as plain text; more than one message
    is a PromptError there.
    """
    if getattr(tokenizer, "chat_template", None) is None and len(conversation) == 1:
        return encode_prompt(conversation[0]["content"], tokenizer)
    return encode_prompt(conversation, tokenizer)


def encode_conversations(
    conversations: Sequence[Conversation], tokenizer: PreTrainedTokenizerBase | None
) -> list[tuple[int, ...]]:
    """Encode all conversations; a PromptError says which, counted from 1."""
    encoded = []
    for number, conversation in enumerate(conversations, 1):
        try:
            encoded.append(encode_conversation(conversation, tokenizer))
        except PromptError as error:
            raise PromptError(f"prompt {number}: {error}") from error
    return encoded


def prompt_key(ids: TokenIds) -> str:
    """Return what a prompt is known by, wherever it stands: a digest of its ids."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:24]


def read_texts(
    path: Path, tokenizer: PreTrainedTokenizerBase, *, max_tokens: int = 1024
) -> Iterator[Sample]:
    """Read plain texts, cut into pieces of at most `max_tokens` ids; all of a piece is learnt.

    `path` is a text, a JSONL file whose lines hold a `text`, or a folder in which all files of
    `TEXT_SUFFIXES` are read, hidden ones aside, in the order of their names. Each piece begins as
    the tokenizer begins a text. A file of a folder that is not UTF-8 is left out, and the log says
    so. Raises OptionError, with file and line, for what cannot be read and where there is no text.
    """
    if max_tokens < 2:
        raise OptionError(f"max_tokens is {max_tokens}, must be at least 2")
    opening = _opening(tokenizer)
    is_empty = True
    for text in _texts(path):
        encoded = tokenizer(text, add_special_tokens=False, verbose=False)
        ids: list[int] = encoded["input_ids"]
        room = max_tokens - len(opening)
        for start in range(0, len(ids), room):
            is_empty = False
            yield Sample((*opening, *ids[start : start + room]))
    if is_empty:
        raise OptionError(f"{str(path)!r} holds no text")


def _opening(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return the id that begins every text, where the tokenizer puts one in."""
    ids: list[int] = tokenizer("")["input_ids"]
    return tuple(ids[:1]) if ids and ids[0] == tokenizer.bos_token_id else ()


def _texts(path: Path) -> Iterator[str]:
    if not path.is_dir():
        try:
            yield from _texts_of(path)
        except UnicodeDecodeError as error:
            raise OptionError(f"{str(path)!r} is not UTF-8: {error.reason}") from error
        return
    for file in sorted(path.rglob("*")):
        is_hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if is_hidden or file.suffix not in TEXT_SUFFIXES or not file.is_file():
            continue
        try:
            yield from _texts_of(file)
        except UnicodeDecodeError:
            _LOGGER.warning("%s is not UTF-8 and was left out", file)


def _texts_of(file: Path) -> Iterator[str]:
    try:
        content = file.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{str(file)!r} cannot be read: {error.strerror}") from error
    if file.suffix != ".jsonl":
        yield content
        return
    # Not splitlines(): a JSON text may hold line separators of other kinds.
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            yield _text_of_line(line, f"{file}:{number}")


def _text_of_line(line: str, place: str) -> str:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise OptionError(f"{place} is no JSON: {error}") from error
    text = row.get("text") if isinstance(row, dict) else None
    if not isinstance(text, str) or not text:
        raise OptionError(f'{place} holds no text; expected an object like {{"text": ...}}')
    return text
