"""A text in a draft model's own ids, kept in step with the target's tokens as they come."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass

from outrider.drafters.plain_encoder import Encoded, PlainEncoder
from outrider.drafters.spelling import Spelling
from outrider.types import TokenIds

_WINDOW = 16
"""Ids at the end of a text that more text may change."""
_TRIES = 8
_LONGEST = 8 * _WINDOW
"""Ids that are kept open for a word that does not end; then it is parted."""


@dataclass(frozen=True, slots=True, eq=False)
class Scribe:
    """All that a transcript is written with: one for a pair of tokenizers."""

    spelling: Spelling
    """The target's."""
    special: Mapping[int, int]
    """The draft model's ids of those special tokens of the target that it has as well."""
    byte_ids: Mapping[int, int]
    """The draft model's ids of single bytes."""
    encoder: PlainEncoder
    """The draft model's."""
    num_ids: int
    """How many ids the draft model has."""
    target_encoder: PlainEncoder
    """The target's, which knows where its tokens spell a space that is none."""


class Transcript:
    """The ids that a draft model would read for a text.

    New text is cut together with the last of what was there, as the draft model's tokenizer cuts
    it; what is further back is *settled* and stays. Special tokens part the text: those that both
    have are translated, others left out. The beginning is that of the draft model's own tokenizer.
    Bytes that are no whole character yet stand at the end as single bytes.
    """

    __slots__ = ("_bytes", "_is_first", "_open", "_scribe", "_settled", "_starts_part", "_text")

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        self._settled: list[int] = list(scribe.encoder.beginning)
        self._open: list[int] = []
        self._text = ""  # of the open ids
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._is_first = True  # nothing of the text is there yet
        self._starts_part = True

    @property
    def settled(self) -> int:
        """How many ids at the beginning are never going to change."""
        return len(self._settled)

    @property
    def length(self) -> int:
        """How many ids there are."""
        return self.settled + len(self.since(self.settled))

    @property
    def can_go_on(self) -> bool:
        """Whether the ids end where the text ends: a draft model may lack single bytes."""
        held = self._held()
        return bool(self._settled or self._open or held) and all(
            byte in self._scribe.byte_ids for byte in held
        )

    def since(self, start: int) -> list[int]:
        """Return the ids from a settled place on."""
        byte_ids = self._scribe.byte_ids
        held = [byte_ids[byte] for byte in self._held() if byte in byte_ids]
        return self._settled[start:] + self._open + held

    def extend(self, tokens: TokenIds) -> None:
        """Write down what the target's tokens say."""
        words: list[bytes] = []
        for token in tokens:
            word = self._scribe.spelling.of(token)
            if word is None:
                self._write(b"".join(words))
                words = []
                self._part(token)
            else:
                words.append(word)
        self._write(b"".join(words))

    def _held(self) -> bytes:
        return self._bytes.getstate()[0]

    def _part(self, special: int) -> None:
        """End a part of the text with a special token of the target."""
        self._write(b"", is_end=True)
        self._settle(len(self._open), "")
        self._starts_part = True
        self._is_first = self._is_first and len(self._settled) == len(
            self._scribe.encoder.beginning
        )
        known = self._scribe.special.get(special)
        # The draft model's own beginning stands for the target's.
        if known is not None and not (self._is_first and self._settled[-1:] == [known]):
            self._settled.append(known)

    def _write(self, data: bytes, *, is_end: bool = False) -> None:
        text = self._bytes.decode(data, final=is_end)
        if not text:
            return
        if self._starts_part:
            text = self._without_dummy(text)
        self._text += text
        encoded = self._encoded(self._text)
        self._open = encoded.ids
        if len(self._open) > 2 * _WINDOW:
            self._shorten(encoded)

    def _without_dummy(self, text: str) -> str:
        """Return the first text of a part with the space before it that the draft model expects."""
        is_first, self._is_first, self._starts_part = self._is_first, False, False
        if self._scribe.target_encoder.has_prefix(is_first=is_first):
            text = text.removeprefix(" ")
        return f" {text}" if self._scribe.encoder.has_prefix(is_first=is_first) else text

    def _encoded(self, text: str) -> Encoded:
        found = self._scribe.encoder.encode(text)
        if max(found.ids, default=0) < self._scribe.num_ids:
            return found
        # Ids that the tokenizer has and the model has not.
        known = [place for place, one in enumerate(found.ids) if one < self._scribe.num_ids]
        return Encoded([found.ids[i] for i in known], [found.spans[i] for i in known])

    def _shorten(self, encoded: Encoded) -> None:
        """Settle all but the last ids, where the text can be cut: the rest is read as before."""
        tries = 0
        for cut in range(len(encoded.ids) - _WINDOW, 0, -1):
            start = encoded.spans[cut][0]
            if start < encoded.spans[cut - 1][1]:
                continue  # within a character
            rest = self._text[start:]
            if tries == _TRIES and len(encoded.ids) < _LONGEST:
                return  # within a long word, which may end yet
            tries += 1
            if tries > _TRIES or self._encoded(rest).ids == encoded.ids[cut:]:
                self._settle(cut, rest)
                return

    def _settle(self, count: int, rest: str) -> None:
        self._settled += self._open[:count]
        self._open = self._open[count:]
        self._text = rest
