"""Medusa drafting (Cai et al. 2401.10774): several heads guess several tokens ahead at once.

Every head reads the same hidden state of the target and knows nothing of what the others guess.
So all of a draft takes a single step, and a tree of it is a choice among products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.drafters.base import Drafter, DraftGrammar, DraftRequest, DraftSampler
from outrider.errors import OptionError
from outrider.heads.medusa import MedusaHeads
from outrider.targets.base import NORMED
from outrider.trees.drawn import DrawnGrowth
from outrider.trees.growth import Growing, Growth
from outrider.trees.marginals import best_first
from outrider.trees.ranks import RankRecord
from outrider.types import NO_DRAFT, DraftTree, TokenIds

_WIDTH = 10


@dataclass(slots=True)
class MedusaState:
    """One request: how many tokens it has, and the target's last hidden state [1, H]."""

    sampler: DraftSampler
    num_tokens: int
    grammar: DraftGrammar | None = None
    hidden: Tensor | None = None
    drawn: DraftTree = NO_DRAFT
    """The last draft, if it was drawn."""


class MedusaDrafter(Drafter[MedusaState]):
    """Drafts trees with Medusa heads, for all requests in one pass of the heads."""

    name = "medusa"
    default_max_draft = 63
    feature_layers = (NORMED,)

    def __init__(
        self,
        heads: MedusaHeads,
        *,
        output_layer: Callable[[Tensor], Tensor],
        width: int = _WIDTH,
    ) -> None:
        """`output_layer`, the target's own, serves heads that share it; `width` is how many tokens
        of each head may stand in a tree below one node.
        """
        if width < 1:
            raise OptionError(f"width is {width}, must be at least 1")
        self._heads = heads
        self._output_layer = output_layer
        self._width = width
        self.drafts_trees = width > 1
        self._ranks = RankRecord(width)

    def steps(self, budget: int) -> int:
        return 1

    def begin(self, request: DraftRequest) -> MedusaState:
        return MedusaState(request.sampler, len(request.prompt_ids), request.grammar)

    @torch.inference_mode()
    def propose(self, states: Sequence[MedusaState], budgets: Sequence[int]) -> list[DraftTree]:
        trees = [NO_DRAFT] * len(states)
        known = [(i, state.hidden) for i, state in enumerate(states) if budgets[i] > 0]
        asked = [(i, hidden) for i, hidden in known if hidden is not None]
        if not asked:
            return trees
        depth = min(max(budgets), self._heads.config.num_heads)
        hidden = torch.cat([one for _, one in asked])
        logits = self._heads(hidden, self._output_layer, count=depth)
        for place, (i, _) in enumerate(asked):
            trees[i] = self._tree(states[i], logits[:, place], budgets[i])
        return trees

    def observe(
        self,
        states: Sequence[MedusaState],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor],
    ) -> None:
        for state, tokens, read in zip(states, committed, features, strict=True):
            self._ranks.learn(state.drawn, tokens)
            state.drawn = NO_DRAFT
            state.num_tokens += len(tokens)
            state.hidden = read[-1:].clone()

    def _tree(self, state: MedusaState, logits: Tensor, budget: int) -> DraftTree:
        """Return a request's draft from the logits [K, V] of its heads."""
        if state.sampler.has_laws:
            growth = DrawnGrowth(self._ranks, budget, len(logits))
            state.drawn = _grown(growth, state, logits).tree(budget)
            return state.drawn
        width = min(self._width, budget)
        if state.grammar is not None:  # what may follow is a matter of the whole path
            return _grown(Growth(width), state, logits).tree(budget)
        positions = range(state.num_tokens, state.num_tokens + len(logits))
        found = state.sampler.candidates(logits, positions, width)
        return best_first(found.tokens, found.chances, budget)


def _grown(growth: Growing, state: MedusaState, logits: Tensor) -> Growing:
    """Grow a tree level by level, every node's children chosen by themselves."""
    for depth, row in enumerate(logits):
        if not growth.frontier:
            break
        count = len(growth.frontier)
        positions = [state.num_tokens + depth] * count
        found = state.sampler.candidates(
            row.expand(count, -1), positions, max(growth.counts), paths=growth.paths()
        )
        growth.add(found.tokens, found.chances, found.q)
    return growth
