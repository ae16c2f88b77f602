"""Drafts copied from the latest place where the last few tokens occurred before (prompt lookup)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.survival import HORIZON, Survival
from outrider.errors import OptionError
from outrider.types import NO_DRAFT, DraftTree, TokenIds

if TYPE_CHECKING:
    from torch import Tensor


class NgramState:
    """One request's text, and where each of its n-grams ended last."""

    __slots__ = (
        "_agreed",
        "_ends",
        "_max_ngram",
        "_min_ngram",
        "_num_matched",
        "_source",
        "_survival",
        "_tokens",
    )

    def __init__(self, min_ngram: int, max_ngram: int) -> None:
        self._min_ngram = min_ngram
        self._max_ngram = max_ngram
        self._tokens: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}
        self._num_matched = 0
        self._source = 0  # where the tokens after the match begin; no match: the end of the text
        self._agreed = 0  # tokens before there that agree, as far as they were followed
        self._survival = Survival()

    def append(self, token: int) -> None:
        """Add a token, and look up the n-grams it completes before they become their own match."""
        tokens, ends = self._tokens, self._ends
        following = self._source
        if self._num_matched:
            self._survival.learn(self._agreed, right=tokens[following] == token)
        tokens.append(token)
        end = len(tokens)
        self._source, self._num_matched = end, 0
        for n in range(self._min_ngram, min(self._max_ngram, end) + 1):
            ngram = tuple(tokens[end - n :])
            earlier = ends.get(ngram)
            if earlier is not None:  # of the longest n-gram, as n goes up
                self._source, self._num_matched = earlier, n
            ends[ngram] = end
        goes_on = self._num_matched and self._source == following + 1
        self._agreed = self._agreed + 1 if goes_on else self._num_matched

    def chances(self, count: int) -> list[float]:
        """Return the chances that the next `count` tokens of the copy are accepted."""
        found: list[float] = []
        reached = 1.0
        for step in range(count):
            reached *= self._survival.rate(self._agreed + step)
            found.append(reached)
        return found

    def copy(self, limit: int) -> list[int]:
        """Return up to `limit` tokens that followed the match.

        Where the match touches or overlaps the end of the text, the text repeats with that period,
        and so does the copy.
        """
        following = self._tokens[self._source : self._source + limit]
        period = len(self._tokens) - self._source
        if 0 < period <= self._num_matched:
            while len(following) < limit:
                following.append(following[-period])
        return following


class NgramDrafter(Drafter[NgramState]):
    """Copies what followed the most recent earlier occurrence of the longest n-gram.

    N-grams of `max_ngram` tokens are tried first, then shorter ones down to `min_ngram`. `length`
    is the most tokens a draft may have (None: as many as the budget allows).
    """

    name = "ngram"
    is_lookup = True
    default_max_draft = HORIZON

    def __init__(
        self, *, max_ngram: int = 5, min_ngram: int = 2, length: int | None = None
    ) -> None:
        if not 1 <= min_ngram <= max_ngram:
            raise OptionError(f"min_ngram is {min_ngram}, must be 1 to max_ngram ({max_ngram})")
        if length is not None and length < 1:
            raise OptionError(f"length is {length}, must be at least 1")
        self._min_ngram = min_ngram
        self._max_ngram = max_ngram
        self._length = length

    def begin(self, request: DraftRequest) -> NgramState:
        """Index the prompt, and the input before it."""
        state = NgramState(self._min_ngram, self._max_ngram)
        for token in (*request.context_ids, *request.prompt_ids):
            state.append(token)
        return state

    def propose(self, states: Sequence[NgramState], budgets: Sequence[int]) -> list[DraftTree]:
        """Copy for each request what followed the match found at its last token."""
        return [
            self._chain(state, budget if self._length is None else min(budget, self._length))
            for state, budget in zip(states, budgets, strict=True)
        ]

    def observe(
        self,
        states: Sequence[NgramState],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        """Index the committed tokens."""
        for state, tokens in zip(states, committed, strict=True):
            for token in tokens:
                state.append(token)

    @staticmethod
    def _chain(state: NgramState, limit: int) -> DraftTree:
        tokens = state.copy(limit)
        return DraftTree.chain(tokens, chances=state.chances(len(tokens))) if tokens else NO_DRAFT
