"""How single tokens are written: as text, and as the bytes they stand for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from outrider.drafters.spelling import byte_letters

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BROKEN = "\ufffd"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class TokenTexts:
    """Texts and bytes of the tokens of one tokenizer; without one a token is its id in words."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self._tokenizer = tokenizer
        self._letters = byte_letters()
        self._texts: dict[int, str] = {}  # at most the vocabulary

    def text(self, token: int) -> str:
        """Return a token as text; what is no whole character shows as a replacement character."""
        if token not in self._texts:
            self._texts[token] = self._decode(token)
        return self._texts[token]

    def bytes(self, token: int) -> list[int]:
        """Return the bytes of a token, those of an incomplete character included."""
        text = self.text(token)
        if _BROKEN in text and self._tokenizer is not None:
            word = str(self._tokenizer.convert_ids_to_tokens(token))
            byte = _BYTE.fullmatch(word)
            if byte is not None:
                return [int(byte[1], 16)]
            if all(letter in self._letters for letter in word):
                return [self._letters[letter] for letter in word]
        return list(text.encode())

    def _decode(self, token: int) -> str:
        if self._tokenizer is None:
            return f"token_id:{token}"
        # As it is, the leading space of a word included, which decoding may strip.
        text = str(
            self._tokenizer.decode(
                [token], skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )
        word = str(self._tokenizer.convert_ids_to_tokens(token))
        return f" {text}" if word.startswith("▁") and not text.startswith(" ") else text
