"""Prompts as answers begin with them: their texts, and where each token's begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.engine.detokenize import Detokenizer
from outrider.server.errors import invalid

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt: its text, its tokens, and where in the text each of them begins."""

    text: str
    ids: tuple[int, ...]
    offsets: tuple[int, ...]


def echo_of(
    prompt: str | tuple[int, ...],
    ids: Sequence[int],
    tokenizer: PreTrainedTokenizerBase | None,
) -> Echo:
    """Return a prompt as it was given, in text or as tokens; raises ApiError without a tokenizer.

    `ids` are its tokens, those included that a tokenizer puts in front of a text.
    """
    if tokenizer is None:
        raise invalid("echo needs a tokenizer, and the model has none", "echo")
    text = prompt if isinstance(prompt, str) else _shown(tokenizer, ids)
    return Echo(text, tuple(ids), tuple(_offsets(text, ids, tokenizer)))


def _offsets(text: str, ids: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    detokenizer, at, offsets = Detokenizer(tokenizer), 0, []
    for token in ids:
        # A text that its tokenizer changes, say the case of its letters, may be shorter.
        offsets.append(min(at, len(text)))
        piece = detokenizer.push(token)
        if not piece:  # part of a character, or a special token, which a prompt may show
            special = _shown(tokenizer, [token])
            piece = special if text.startswith(special, at) else ""
        at += len(piece)
    return offsets


def _shown(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))
