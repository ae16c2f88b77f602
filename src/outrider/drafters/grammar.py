"""Drafts that follow from the grammar alone: the tokens to which it leaves no alternative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outrider.drafters.base import Drafter, DraftGrammar, DraftRequest
from outrider.drafters.survival import HORIZON
from outrider.types import NO_DRAFT, DraftTree, TokenIds

if TYPE_CHECKING:
    from torch import Tensor


class GrammarDrafter(Drafter[DraftGrammar | None]):
    """Proposes the tokens that the grammar forces next, which the target cannot but accept.

    It needs neither the text nor a model: where a request stands in its grammar is the state. A
    request without a grammar gets no drafts.
    """

    name = "grammar"
    is_lookup = True
    needs_grammar = True
    reads_text = False
    default_max_draft = HORIZON

    def begin(self, request: DraftRequest) -> DraftGrammar | None:
        """Take up the grammar, which the request itself leads on."""
        return request.grammar

    def propose(
        self, states: Sequence[DraftGrammar | None], budgets: Sequence[int]
    ) -> list[DraftTree]:
        """Propose for each request what its grammar forces."""
        return [
            NO_DRAFT if grammar is None else _chain(grammar.forced(budget))
            for grammar, budget in zip(states, budgets, strict=True)
        ]

    def observe(
        self,
        states: Sequence[DraftGrammar | None],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        """Learn nothing: the grammar follows what is committed by itself."""


def _chain(tokens: TokenIds) -> DraftTree:
    return DraftTree.chain(tokens, chances=[1.0] * len(tokens)) if tokens else NO_DRAFT
