"""The target's own first layers as the drafter (LayerSkip, Elhoushi et al. 2404.16710)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from outrider.drafters.base import Drafter, DraftRequest, DraftSampler
from outrider.errors import OptionError
from outrider.targets.early_exit import EarlyExit
from outrider.trees.growth import Growing, Growth, ShapedGrowth
from outrider.trees.shape import usual_shape
from outrider.types import DraftTree, TokenIds


@dataclass(slots=True)
class EarlyExitState:
    """One request's tokens, and the target's own sequence that holds most of them."""

    sequence: int
    sampler: DraftSampler
    tokens: list[int]


class EarlyExitDrafter(Drafter[EarlyExitState]):
    """Drafts a chain, a token a pass of the first layers, in the cache of the target itself.

    What the layers have worked out for a draft, the pass that verifies it does not work out again.
    Nothing of a draft needs to be undone: the target forgets it with the pass.
    """

    name = "early-exit"
    default_max_draft = 12
    reads_text = False  # the target has read it

    def __init__(self, early: EarlyExit) -> None:
        """Draft for the engine of the target whose `exit_at` gave `early`."""
        self._early = early

    def begin(self, request: DraftRequest) -> EarlyExitState:
        if request.sequence is None:
            raise OptionError(
                "early-exit drafts with the target's own layers: the request must name the "
                "target's sequence"
            )
        return EarlyExitState(request.sequence, request.sampler, list(request.prompt_ids))

    def propose(self, states: Sequence[EarlyExitState], budgets: Sequence[int]) -> list[DraftTree]:
        most = self._early.max_positions
        lengths = [
            max(0, min(budget, most - len(state.tokens)))
            for state, budget in zip(states, budgets, strict=True)
        ]
        chains = [
            _chain(state.sampler, length) for state, length in zip(states, lengths, strict=True)
        ]
        for step in range(max(lengths, default=0)):
            active = [i for i, length in enumerate(lengths) if step < length and chains[i].frontier]
            if active:
                self._extend([states[i] for i in active], [chains[i] for i in active])
        return [chain.tree(length) for chain, length in zip(chains, lengths, strict=True)]

    def _extend(self, states: Sequence[EarlyExitState], chains: Sequence[Growing]) -> None:
        """Add a token to each chain, with one pass over the first layers."""
        unread = [
            state.tokens[self._early.cached(state.sequence) :] + chain.tokens
            for state, chain in zip(states, chains, strict=True)
        ]
        logits = self._early.draft([state.sequence for state in states], unread)
        for state, chain, row in zip(states, chains, logits, strict=True):
            position = len(state.tokens) + len(chain.tokens)
            found = state.sampler.candidates(row[None], [position], 1, paths=chain.paths())
            chain.add(found.tokens, found.chances, found.q)

    def observe(
        self,
        states: Sequence[EarlyExitState],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        for state, tokens in zip(states, committed, strict=True):
            state.tokens.extend(tokens)


def _chain(sampler: DraftSampler, length: int) -> Growing:
    if sampler.has_laws and length > 0:
        return ShapedGrowth(usual_shape(length, 1, length))
    return Growth(1)
