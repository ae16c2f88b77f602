"""What each token of a tokenizer spells: bytes, which two tokenizers can be compared by."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.errors import VocabularyMismatchError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

_SPACE = "▁"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_BROKEN = "\ufffd"

Speller = Callable[[str, int], bytes | None]


@dataclass(frozen=True, slots=True, eq=False)
class Spelling:
    """The bytes of every token id; None for a special token, and for an id that has no text."""

    words: Sequence[bytes | None]
    byte_ids: Mapping[int, int]
    """The ids that spell a single byte, by that byte."""
    ids: Mapping[bytes, int]
    """One id for every spelling: a piece of text rather than a byte to fall back on."""

    def of(self, token_id: int) -> bytes | None:
        """Return what a token spells, None for what is no token of the vocabulary as well."""
        return self.words[token_id] if 0 <= token_id < len(self.words) else None


def require_fast(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Return the tokenizer's own parts; raises VocabularyMismatchError if it shows none."""
    from tokenizers import Tokenizer

    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise VocabularyMismatchError(
            f"tokens cannot be translated: {type(tokenizer).__name__} is none of the fast "
            "tokenizers of Transformers"
        )
    return backend


def special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the ids that stand for no text: ends and beginnings, turns, padding, the unknown."""
    added = tokenizer.added_tokens_decoder.items()
    return {token_id for token_id, token in added if token.special} | set(tokenizer.all_special_ids)


def spell(tokenizer: PreTrainedTokenizerBase) -> Spelling:
    """Work out what every token spells.

    Byte-level and SentencePiece vocabularies are read entry by entry; any other has its tokens
    decoded behind another one. Raises VocabularyMismatchError for a tokenizer that is not fast.
    """
    backend = require_fast(tokenizer)
    special = special_ids(tokenizer)
    added = tokenizer.added_tokens_decoder
    spell_word = _speller(backend, special)
    vocab = tokenizer.get_vocab()
    words: list[bytes | None] = [None] * (max(vocab.values(), default=-1) + 1)
    fallback: set[int] = set()
    for word, token_id in vocab.items():
        if token_id in special:
            continue
        if token_id in added:  # stands for itself
            words[token_id] = added[token_id].content.encode()
            continue
        words[token_id] = spell_word(word, token_id) or None
        if _BYTE.fullmatch(word):
            fallback.add(token_id)
    return Spelling(words, *_by_spelling(words, fallback))


def _by_spelling(
    words: Sequence[bytes | None], fallback: set[int]
) -> tuple[dict[int, int], dict[bytes, int]]:
    """Return the ids of single bytes and of all spellings, the first of several that are alike."""
    order = sorted(range(len(words)), key=lambda token_id: token_id in fallback)
    ids: dict[bytes, int] = {}
    for token_id in order:
        word = words[token_id]
        if word is not None:
            ids.setdefault(word, token_id)
    # A byte that is no whole character has no other piece than the one to fall back on.
    return {word[0]: token_id for word, token_id in ids.items() if len(word) == 1}, ids


def _speller(backend: Tokenizer, special: set[int]) -> Speller:
    """Return what spells an entry of the vocabulary, by how the tokenizer decodes."""
    kinds = {part["type"]: part for part in _decoders(backend)}
    if "ByteLevel" in kinds:
        letters = byte_letters()
        return lambda word, _: _of_letters(word, letters)
    marks_spaces = "Metaspace" in kinds or (
        kinds.get("Replace", {}).get("pattern") == {"String": _SPACE}
    )
    if marks_spaces:
        has_bytes = "ByteFallback" in kinds
        return lambda word, _: _of_piece(word, has_bytes)
    return _decoding_speller(backend, special)


def _of_letters(word: str, letters: Mapping[str, int]) -> bytes:
    try:
        return bytes(letters[letter] for letter in word)
    except KeyError:
        return word.encode()


def _of_piece(word: str, has_bytes: bool) -> bytes:
    byte = _BYTE.fullmatch(word) if has_bytes else None
    return bytes([int(byte[1], 16)]) if byte else word.replace(_SPACE, " ").encode()


def _decoding_speller(backend: Tokenizer, special: set[int]) -> Speller:
    """Return what spells a token as the text that it adds to another."""
    ids = backend.get_vocab(with_added_tokens=False).items()
    anchor = next((i for word, i in ids if i not in special and word.isalnum()), None)
    start = [] if anchor is None else [anchor]
    before = backend.decode(start, skip_special_tokens=False)

    def spelled(_: str, token_id: int) -> bytes | None:
        text = backend.decode([*start, token_id], skip_special_tokens=False)
        if not text.startswith(before) or _BROKEN in text:
            return None
        return text[len(before) :].encode()

    return spelled


def _decoders(backend: Tokenizer) -> Iterator[dict[str, Any]]:
    """Yield what a tokenizer decodes with, part by part; nothing if that is code of its own."""
    if backend.decoder is None:
        return
    try:
        state = backend.decoder.__getstate__()
    except Exception:  # noqa: BLE001  that of the bindings, which have no error of their own
        return
    yield from _flattened(json.loads(state))


def _flattened(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if part["type"] == "Sequence":
        for inner in part["decoders"]:
            yield from _flattened(inner)
    else:
        yield part


def byte_letters() -> dict[str, int]:
    """Return the byte that each letter of a byte-level vocabulary stands for (Radford 2019)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(0x100) if byte not in set(printable))
    return letters | {chr(0x100 + place): byte for place, byte in enumerate(others)}
