"""How drafters that sample draw their tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.errors import NumericsError, OptionError
from outrider.sampling.draw import (
    Finder,
    Leader,
    draw_row,
    fresh_keys,
    highest,
    leaders,
    race_keys,
)
from outrider.sampling.filters import build_filters
from outrider.sampling.grammar_state import GrammarState
from outrider.sampling.noise import KeyedNoise, Stream
from outrider.types import AnyRule, Candidates, LossyRule, TokenIds


class KeyedDraftSampler:
    """Draws drafts at the request's temperature, with the noise that its rule calls for.

    Under `match` that is the target's own noise for the position: where the two distributions
    agree, so do the draws. Under a rule that rejects, every draw has fresh noise, even at a
    position drafted before: that the earlier draft was dropped may have depended on its noise.

    Cutting the drafter's tail as the target's is cut changes nothing that is emitted, and makes
    more drafts pass. So does leaving out what the request's grammar refuses after the tokens that
    were drafted before, where a drafter says which those are.
    """

    __slots__ = ("_draws", "_filters", "_grammar", "_noise", "_rule", "_temperature", "_vocab_size")

    def __init__(
        self,
        temperature: float,
        noise: KeyedNoise,
        rule: AnyRule,
        *,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        vocab_size: int | None = None,
        grammar: GrammarState | None = None,
    ) -> None:
        """`vocab_size`: the target's; only drafters with ids of their own need it.

        `grammar`: where the request stands in its own, as the request itself leads it on.
        """
        self._temperature = temperature
        self._filters = build_filters(temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        self._noise = noise
        self._rule = rule.base if isinstance(rule, LossyRule) else rule
        self._draws = 0
        self._vocab_size = vocab_size
        self._grammar = grammar

    @property
    def is_greedy(self) -> bool:
        """Whether drafts are the drafter's argmax: deterministic, no `q`."""
        return self._temperature == 0

    @property
    def has_laws(self) -> bool:
        """Whether drafts come with `q`: sampled ones, under the rules that reject."""
        return not self.is_greedy and self._rule != "match"

    def draw(
        self, logits: Tensor, position: int, path: TokenIds | None = None
    ) -> tuple[int, Tensor | None]:
        """Choose the token at an absolute position from draft logits [V]; return it and q [V].

        q, on the CPU, comes with sampled drafts under the rules that reject. `path` are the tokens
        drafted before it; where the grammar leaves nothing after them, the draw is as without it.
        """
        row = logits.unsqueeze(0)
        scores = self._scores(row, None, None if path is None else [path]).squeeze(0)
        if path is not None and scores.amax() == -math.inf:
            scores = self._scores(row, None, None).squeeze(0)
        if self.is_greedy:
            return self._checked(highest(scores), position), None
        if not self.has_laws:
            winner = draw_row(scores, self._noise, Stream.TARGET, position)
            return self._checked(winner, position), None
        self._draws += 1
        winner = draw_row(scores, self._noise, Stream.DRAFT, position, index=self._draws)
        return self._checked(winner, position), scores.softmax(dim=-1).cpu()

    def candidates(
        self,
        logits: Tensor,
        positions: Sequence[int],
        count: int,
        ids: Tensor | None = None,
        paths: Sequence[TokenIds] | None = None,
        find: Finder | None = None,
    ) -> Candidates:
        """Choose up to `count` tokens for each row of draft logits [R, D].

        Greedy drafts are the likeliest tokens; under `match` those that come first with the
        target's own noise at `positions`; under a rule that rejects a sample without replacement,
        with fresh noise for every row. A row with fewer possible tokens has fewer candidates.
        `paths[r]` are the tokens drafted before those of row r, after which the grammar may leave
        none. `find` is a faster way to the likeliest than torch's.

        Raises NumericsError for a row without any for which no grammar can be the reason.
        """
        scores, law = self._scores(logits, ids, paths), None
        if self.has_laws:
            law = scores.softmax(dim=-1)
            # What q rounds to nothing cannot have been drawn from it.
            keys = self._fresh_keys(scores.masked_fill(law == 0, -math.inf), positions)
        else:
            keys = scores if self.is_greedy else self._shared_keys(scores, positions, ids)
        found = leaders(keys, count, ids, law, find)
        for row, position in zip(found, positions, strict=True):
            if row or self._grammar is None or paths is None:
                self._checked(_best(row), position)
        return Candidates(
            tokens=[[token for _, token, _ in row] for row in found],
            chances=[[chance for _, _, chance in row] for row in found],
            q=None if law is None else self._over_target_ids(law, ids).cpu(),
        )

    def _scores(
        self, logits: Tensor, ids: Tensor | None, paths: Sequence[TokenIds] | None
    ) -> Tensor:
        """Return the scores [R, D] that a softmax turns into the law of drafts."""
        scores = logits if logits.dtype == torch.float64 else logits.float()
        if self._grammar is not None and paths is not None:
            scores = _within(self._grammar, scores, ids, paths)
        for apply_filter in self._filters:
            scores = apply_filter(scores)
        return scores

    def _fresh_keys(self, scores: Tensor, positions: Sequence[int]) -> Tensor:
        first, self._draws = self._draws + 1, self._draws + len(positions)
        return fresh_keys(scores, self._noise, Stream.DRAFT, positions, first_index=first)

    def _shared_keys(self, scores: Tensor, positions: Sequence[int], ids: Tensor | None) -> Tensor:
        """Return the keys of the target's own race, at the tokens that the columns stand for."""
        if ids is None:
            return race_keys(scores, self._noise, Stream.TARGET, positions)
        # A token's noise does not depend on the size of the vocabulary.
        width = int(ids.max()) + 1 if self._vocab_size is None else self._vocab_size
        return race_keys(scores, self._noise, Stream.TARGET, positions, ids=ids, vocab_size=width)

    def _over_target_ids(self, law: Tensor, ids: Tensor | None) -> Tensor:
        """Give a law [R, D] the target's width [R, V]."""
        if ids is None:
            return law
        if self._vocab_size is None:
            raise OptionError("ids are given to a sampler that does not know vocab_size")
        return law.new_zeros(len(law), self._vocab_size).index_copy_(1, ids, law)

    def _checked(self, winner: tuple[int, float], position: int) -> int:
        token, best = winner
        if not math.isfinite(best):
            raise NumericsError(f"draft logits leave no token to choose at position {position}")
        return token


def _within(
    grammar: GrammarState, scores: Tensor, ids: Tensor | None, paths: Sequence[TokenIds]
) -> Tensor:
    """Return scores [R, D] without what a grammar refuses after the path of each row.

    Behind the end of the text nothing is worth drafting, though it may be said over and over.
    """
    limits = grammar.limits([tuple(path) for path in paths], scores.device)
    for row, path in enumerate(paths):
        if grammar.is_over(path):
            limits[row] = -math.inf
    limits = limits[:, : scores.shape[-1]] if ids is None else limits[:, ids]
    return torch.minimum(scores, limits)


def _best(row: Sequence[Leader]) -> tuple[int, float]:
    """Return the token with the highest key and that key, -inf if there is none."""
    return (row[0][1], row[0][0]) if row else (0, -math.inf)
