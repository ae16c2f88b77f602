"""Log-probabilities of a prompt's own tokens, noted while the prompt is read."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from outrider.sampling.logprobs import token_logprobs
from outrider.types import TokenLogprobs

MOST_SCORED_ROWS = 256
"""A prompt that is scored is read in pieces of at most so many tokens, for its logits' memory."""

_BLOCK = 32  # rows whose log-probabilities are worked out at a time, in float64


class PromptScores:
    """What the target thinks of each token of a prompt; a request carries one, and fills it.

    The distribution is the target's raw one, as for emitted tokens. All is there once the request
    has emitted something. A request that is scored reads its whole prompt, whatever is cached.
    """

    def __init__(self, top: int = 0) -> None:
        """`top`: how many of the likeliest tokens come with each."""
        self.top = top
        self._records: list[TokenLogprobs] = []

    @property
    def records(self) -> tuple[TokenLogprobs, ...]:
        """One for each token but the first, which nothing comes before."""
        return tuple(self._records)

    def begin(self) -> None:
        """Forget what there is: the prompt is going to be read from its beginning."""
        self._records.clear()

    def add(self, logits: Tensor, tokens: Sequence[int]) -> None:
        """Note the tokens that follow the next rows [R, V] of the prompt."""
        for start in range(0, len(tokens), _BLOCK):
            block = slice(start, start + _BLOCK)
            self._records += token_logprobs(logits[block], tokens[block], self.top)
