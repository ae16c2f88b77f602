"""Drafted text in the target's tokens, as they go on behind those that stand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from outrider.drafters.plain_encoder import PlainEncoder
from outrider.drafters.spelling import Spelling
from outrider.types import TokenIds

WINDOW = 16
"""Tokens of the text before that have a say in how a draft is cut."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Target tokens, and how many bytes of the drafted text each of them reaches to."""

    ids: list[int]
    ends: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Retokenizer:
    """Cuts text into the target's tokens: those that the target itself would most likely say."""

    spelling: Spelling
    encoder: PlainEncoder
    num_ids: int
    """How many ids the target has."""

    def go_on(self, before: TokenIds, data: bytes) -> Continuation:
        """Return the tokens of a text that is drafted after others, none of which is special.

        The text is cut together with what comes before it. Where the tokenizer would rather have
        one token that reaches over the end of those that stand, the rest of it is cut by itself.
        What is no whole character, at the end, is left out.
        """
        spelled = b"".join(self.spelling.of(token) or b"" for token in before)
        start, text = _readable(spelled, data)
        ids = self._after(spelled[start:], text)
        known = next((i for i, one in enumerate(ids) if not self._is_text(one)), len(ids))
        lengths = [len(self._word(token)) for token in ids[:known]]
        return Continuation(ids[:known], list(accumulate(lengths)))

    def _after(self, spelled: bytes, text: str) -> list[int]:
        """Return the ids of what a text has beyond the bytes that it begins with."""
        whole, place = text.encode(), 0
        cut = self.encoder.encode(text).ids
        if b"".join(map(self._word, cut)) != whole:  # other text to this tokenizer
            return self._ids_of(whole[len(spelled) :])
        for i, token in enumerate(cut):
            if place == len(spelled):
                return cut[i:]
            place += len(self._word(token))
            if place > len(spelled):
                return self._ids_of(whole[len(spelled) : place]) + cut[i + 1 :]
        return []

    def _ids_of(self, data: bytes) -> list[int]:
        """Return the ids of a text by itself, byte by byte if it begins within a character."""
        try:
            return self.encoder.encode(data.decode()).ids
        except UnicodeDecodeError:
            byte_ids = self.spelling.byte_ids
            return [byte_ids[byte] for byte in data] if set(data) <= byte_ids.keys() else []

    def _word(self, token: int) -> bytes:
        return self.spelling.of(token) or b""

    def _is_text(self, token: int) -> bool:
        return token < self.num_ids and self.spelling.of(token) is not None


def _readable(spelled: bytes, data: bytes) -> tuple[int, str]:
    """Return where the last readable text before begins, and that text with what is drafted.

    The text ends before the first drafted byte that makes no character.
    """
    whole, start, end = spelled + data, 0, len(spelled) + len(data)
    while True:
        try:
            return start, whole[start:end].decode()
        except UnicodeDecodeError as error:
            if start + error.end <= len(spelled):
                start += error.end
            else:
                end = start + error.start
