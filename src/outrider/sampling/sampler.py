"""How drafters that sample draw their tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from outrider.errors import NumericsError
from outrider.sampling.draw import draw_row, highest
from outrider.sampling.filters import build_filters
from outrider.sampling.noise import KeyedNoise, Stream
from outrider.types import Rule


class KeyedDraftSampler:
    """Draws drafts at the request's temperature, with the noise that its rule calls for.

    Under `match` that is the target's own noise for the position: where the two distributions
    agree, so do the draws. Under a rule that rejects, every draw has fresh noise, even at a
    position drafted before: that the earlier draft was dropped may have depended on its noise.

    Cutting the drafter's tail as the target's is cut changes nothing that is emitted, and makes
    more drafts pass.
    """

    __slots__ = ("_draws", "_filters", "_noise", "_rule", "_temperature")

    def __init__(
        self,
        temperature: float,
        noise: KeyedNoise,
        rule: Rule,
        *,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
    ) -> None:
        self._temperature = temperature
        self._filters = build_filters(temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        self._noise = noise
        self._rule = rule
        self._draws = 0

    @property
    def is_greedy(self) -> bool:
        """Whether drafts are the drafter's argmax: deterministic, no `q`."""
        return self._temperature == 0

    def draw(self, logits: Tensor, position: int) -> tuple[int, Tensor | None]:
        """Choose the token at an absolute position from draft logits [V]; return it and q [V].

        q, on the CPU, comes with sampled drafts under the rules that reject.
        """
        scores = logits if logits.dtype == torch.float64 else logits.float()
        if self.is_greedy:
            return self._checked(highest(scores), position), None
        for apply_filter in self._filters:
            scores = apply_filter(scores.unsqueeze(0)).squeeze(0)
        if self._rule == "match":
            winner = draw_row(scores, self._noise, Stream.TARGET, position)
            return self._checked(winner, position), None
        self._draws += 1
        winner = draw_row(scores, self._noise, Stream.DRAFT, position, index=self._draws)
        return self._checked(winner, position), scores.softmax(dim=-1).cpu()

    def _checked(self, winner: tuple[int, float], position: int) -> int:
        token, best = winner
        if not math.isfinite(best):
            raise NumericsError(f"draft logits leave no token to choose at position {position}")
        return token
