"""What a finished request gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outrider.engine.stats import Stats
from outrider.types import Chunk, FinishReason, Token, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Result:
    """Text and tokens of one answer, why it ended, its seed and what it cost."""

    text: str
    tokens: tuple[Token, ...]
    prompt_ids: tuple[int, ...]
    finish_reason: FinishReason
    seed: int
    stats: Stats
    choices: tuple[Result, ...] = ()
    """All answers of a request with `n` > 1, this one first; otherwise empty."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The emitted ids, an end-of-text id included."""
        return tuple(token.id for token in self.tokens)

    @property
    def lossy(self) -> str | None:
        """The lossy rule that had a part in it, None if the text is the target's own."""
        return self.stats.lossy

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...] | None:
        """One record a token, if they were asked for."""
        records = tuple(token.logprobs for token in self.tokens if token.logprobs is not None)
        return records if records or not self.tokens else None

    def with_choices(self, choices: Sequence[Result]) -> Result:
        """Return this result with all choices of its request attached."""
        return replace(self, choices=tuple(choices))


class Collector:
    """Builds a result from the chunks of one request."""

    def __init__(self, prompt_ids: Sequence[int], seed: int) -> None:
        self._prompt_ids = tuple(prompt_ids)
        self._seed = seed
        self._text: list[str] = []
        self._tokens: list[Token] = []

    def add(self, chunk: Chunk) -> None:
        """Append what one round emitted."""
        self._text.append(chunk.text)
        self._tokens.extend(chunk.tokens)

    def result(self, finish_reason: FinishReason, stats: Stats) -> Result:
        """Return the whole answer."""
        return Result(
            text="".join(self._text),
            tokens=tuple(self._tokens),
            prompt_ids=self._prompt_ids,
            finish_reason=finish_reason,
            seed=self._seed,
            stats=stats,
        )
