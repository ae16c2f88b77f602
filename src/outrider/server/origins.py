"""Where each piece of a text came from: of which token it is, and who guessed that token."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.engine.detokenize import Detokenizer
from outrider.server.deltas import Delta
from outrider.types import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one token; several in a row of one origin may be told as one."""

    text: str
    source: Source
    drafter: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {"text": self.text, "source": self.source, "drafter": self.drafter}


class Origins:
    """Follows one answer, and says of each character which token it belongs to.

    Text that is held back, since it may grow into a stop string, keeps its origin until it comes.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._ahead: deque[tuple[int, Source, str | None]] = deque()
        self._length = 0

    def follow(self, delta: Delta) -> list[int]:
        """Take in a delta; returns where in the answer the text of each of its tokens begins."""
        offsets = []
        for token in delta.tokens:
            offsets.append(self._length)
            length = len(self._detokenizer.push(token.id))
            self._length += length
            drafter = delta.drafter if token.source == "accepted" else None
            self._ahead.append((length, token.source, drafter))
        return offsets

    def pieces(self, text: str) -> Iterator[Piece]:
        """Yield the pieces of text that is shown now."""
        while text and self._ahead:
            length, source, drafter = self._ahead.popleft()
            if length > len(text):
                self._ahead.appendleft((length - len(text), source, drafter))
            if length:
                yield Piece(text[:length], source, drafter)
            text = text[length:]
        if text:
            yield Piece(text, "plain", None)
