"""Text to ids, with nothing added: a text may begin or go on anywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from outrider.drafters.spelling import require_fast
from outrider.errors import VocabularyMismatchError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Prefix: TypeAlias = Literal["never", "first", "always"]
"""Where a tokenizer puts a space before a text: nowhere, at its beginning, or also after every
special token."""

_SPACE = "▁"
_SPLITTERS = ("normalizers", "pretokenizers")


@dataclass(frozen=True, slots=True)
class Encoded:
    """The ids of a text, and the characters of it that each begins and ends with."""

    ids: list[int]
    spans: list[tuple[int, int]]


class PlainEncoder:
    """A tokenizer's own way of cutting text, without what it adds to a whole one.

    No special tokens, neither put in front nor read from the text, no space before it. It works on
    a copy: the user's tokenizer stays as it is.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Raises VocabularyMismatchError for a tokenizer that cannot be copied."""
        from tokenizers import Tokenizer

        try:
            description: dict[str, Any] = json.loads(require_fast(tokenizer).to_str())
        except VocabularyMismatchError:
            raise
        except Exception as error:  # that of the bindings, which have no error of their own
            raise VocabularyMismatchError(
                f"tokens cannot be translated: the tokenizer cannot be copied ({error})"
            ) from error
        prefixes: list[Prefix] = []
        for name in ("normalizer", "pre_tokenizer"):
            description[name] = _without_prefix(description[name], prefixes)
        description |= {"post_processor": None, "truncation": None, "padding": None}
        self._tokenizer: Any = Tokenizer.from_str(json.dumps(description))
        self._tokenizer.encode_special_tokens = True
        self.prefix: Prefix = prefixes[0] if prefixes else "never"
        self.beginning = _beginning(tokenizer)
        """The special tokens that the tokenizer puts before a text."""

    def encode(self, text: str) -> Encoded:
        """Cut a text."""
        found = self._tokenizer.encode(text, add_special_tokens=False)
        return Encoded(found.ids, found.offsets)

    def has_prefix(self, *, is_first: bool) -> bool:
        """Whether a space is put before the first text, or before one behind a special token."""
        return self.prefix == "always" or (self.prefix == "first" and is_first)


def _beginning(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    text = "a"
    whole: Sequence[int] = tokenizer.encode(text)
    plain: Sequence[int] = tokenizer.encode(text, add_special_tokens=False)
    for start in range(len(whole) - len(plain) + 1):
        if list(whole[start : start + len(plain)]) == list(plain):
            return tuple(whole[:start])
    return ()


def _without_prefix(part: Any, prefixes: list[Prefix]) -> Any:
    """Return a part of a tokenizer's description that adds no space, and note where it did."""
    if part is None:
        return None
    for name in _SPLITTERS:
        if name in part:
            inner = [_without_prefix(one, prefixes) for one in part[name]]
            return part | {name: [one for one in inner if one is not None]}
    match part:
        case {"type": "Prepend", "prepend": prepended} if prepended == _SPACE:
            prefixes.append("always")
            return None
        case {"type": "Metaspace", "prepend_scheme": scheme} if scheme != "never":
            prefixes.append(scheme)
            return part | {"prepend_scheme": "never"}
        case {"type": "ByteLevel", "add_prefix_space": True}:
            prefixes.append("always")
            return part | {"add_prefix_space": False}
        case {"type": "Whitespace" | "WhitespaceSplit" | "BertPreTokenizer"}:
            prefixes.append("always")  # in effect: every word is one behind a space
    return part
