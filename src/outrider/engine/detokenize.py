"""Token ids to text, one at a time: streamed pieces joined are the text, by construction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from outrider.types import TokenIds

_BROKEN = "\ufffd"
# A character is at most four bytes of UTF-8, so one that is still incomplete shows as at most
# three replacement characters: anything before those is final.
_MAX_HELD = 3
_CONTEXT = 8  # ids kept in front of the new ones, so that a decode costs the same at any length


class Detokenizer:
    """Turns ids into text as they come, holding back characters that are not complete yet.

    Every push decodes a short window: a few ids already shown (a tokenizer may treat the first
    piece of a text differently, e.g. strip its space) and those not shown yet. What is held back at
    the end is an incomplete character, so nothing is left to flush. Special tokens have no text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, after: TokenIds = ()) -> None:
        """Start a text that stands alone, or one that goes on `after` these ids (a prompt's end).

        The difference is the leading space of SentencePiece tokenizers: a text on its own has none.
        """
        self._tokenizer = tokenizer
        self._decode_ids = _decoder(tokenizer)
        self._window = list(after[-_CONTEXT:])
        self._settled = len(self._window)  # ids of the window whose text is shown, all of it
        self._shown = self._decode()  # the part of the window's text that is shown

    def push(self, token_id: int) -> str:
        """Return the text that this token makes final; "" while a character is incomplete."""
        self._window.append(token_id)
        text = self._decode()
        if not text.startswith(self._shown):
            # Byte-fallback decoders show a whole run of bytes as broken while its end is not valid.
            del self._window[: self._settled]
            self._settled, self._shown = 0, ""
            text = self._decode()
        held = min(_MAX_HELD, _trailing_broken(text, since=len(self._shown)))
        final = text[: len(text) - held]
        piece = final[len(self._shown) :]
        self._shown = final
        self._shorten(held, is_clean=piece != "" and not held)
        return piece

    def special_id(self, text: str) -> int | None:
        """Return the id of the special token written like this, None if there is no such token."""
        for token_id, token in self._tokenizer.added_tokens_decoder.items():
            if token.special and token.content == text:
                return token_id
        return None

    def _decode(self) -> str:
        return self._decode_ids(self._window)

    def _shorten(self, held: int, *, is_clean: bool) -> None:
        start = self._settled
        if is_clean:
            self._settled = len(self._window)
        if len(self._window) <= 2 * _CONTEXT:
            return
        if is_clean and start:
            del self._window[:start]
            self._settled -= start
        elif not is_clean:
            # Special tokens, or a long run without a clean end: UTF-8 finds its feet again within
            # four bytes, so the ids in the middle no longer matter. Those settled stay as context.
            del self._window[start:-_CONTEXT]
        text = self._decode()
        self._shown = text[: len(text) - held]


def _decoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[list[int]], str]:
    """Return what decodes ids without special tokens, as the tokenizer does."""
    kind = type(tokenizer)
    own = [getattr(kind, name, None) for name in ("decode", "_decode")]
    usual = [getattr(PreTrainedTokenizerFast, name) for name in ("decode", "_decode")]
    is_usual = isinstance(tokenizer, PreTrainedTokenizerFast) and own == usual
    if is_usual and "decode" not in vars(tokenizer):
        # What decode() itself comes to, in a third of the time: it is called for every token.
        return partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=True)
    slow = partial(tokenizer.decode, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return cast("Callable[[list[int]], str]", slow)


def _trailing_broken(text: str, *, since: int) -> int:
    tail = text[since:]
    return len(tail) - len(tail.rstrip(_BROKEN))
