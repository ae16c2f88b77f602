"""Drafts that grow token by token in a draft model's own ids, and end up in the target's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.drafters.base import DraftSampler
from outrider.drafters.retokenizer import Retokenizer
from outrider.drafters.spelling import Spelling
from outrider.types import NO_DRAFT, DraftTree


class ForeignDraft(ABC):
    """One request's draft while a model with other ids makes it."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.read: list[int] = []
        """What was drafted so far, in the draft model's ids."""
        self.passes = 0
        self.is_over = budget < 1

    def add(self, logits: Tensor) -> None:
        """Go on by what the draft model says [1, D] after all that was drafted."""
        self.passes += 1
        self._add(logits)
        self.is_over = self.is_over or self.passes >= self._budget

    @abstractmethod
    def _add(self, logits: Tensor) -> None: ...

    @abstractmethod
    def tree(self) -> DraftTree:
        """Return the draft in the target's ids: at most as many tokens as were asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedIds:
    """The tokens that target and draft model both have: of column i, the ids of both."""

    target: Tensor
    draft: Tensor
    draft_of: Mapping[int, int]

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]], device: torch.device) -> SharedIds:
        """Read pairs (target's id, draft model's), one to one."""
        ids = torch.tensor(pairs, dtype=torch.long, device=device).reshape(-1, 2)
        return cls(ids[:, 0].contiguous(), ids[:, 1].contiguous(), dict(pairs))


class SharedTokensDraft(ForeignDraft):
    """Drafts with tokens that both have, by the draft model's law over these alone.

    That law, not the model's own, is the `q` that drafts are drawn from (token-level intersection,
    Timor et al. 2502.05202), so the rules that reject stay exact.
    """

    def __init__(self, budget: int, sampler: DraftSampler, position: int, ids: SharedIds) -> None:
        """`position`: the absolute one of the first token drafted, in the target's tokens."""
        super().__init__(budget)
        self._sampler = sampler
        self._position = position
        self._ids = ids
        self._tokens: list[int] = []
        self._chances: list[float] = []
        self._laws: list[Tensor] = []

    def _add(self, logits: Tensor) -> None:
        found = self._sampler.candidates(
            logits[:, self._ids.draft],
            [self._position + len(self._tokens)],
            1,
            self._ids.target,
            [self._tokens],
        )
        if not found.tokens[0]:  # a grammar leaves nothing after what was drafted
            self.is_over = True
            return
        token = found.tokens[0][0]
        self._tokens.append(token)
        reached = self._chances[-1] if self._chances else 1.0
        self._chances.append(reached * min(1.0, found.chances[0][0]))
        if found.q is not None:
            self._laws.append(found.q[0])
        self.read.append(self._ids.draft_of[token])

    def tree(self) -> DraftTree:
        if not self._tokens:
            return NO_DRAFT
        if self._laws:
            return DraftTree.chain(self._tokens, torch.stack(self._laws))
        return DraftTree.chain(self._tokens, chances=self._chances)


class TextDraft(ForeignDraft):
    """Drafts the draft model's likeliest text, which the target's tokenizer cuts.

    A draft without `q`: whether it stands depends on the target's tokens alone, and every rule is
    exact with it (string-level exact match, Timor et al. 2502.05202).
    """

    def __init__(
        self,
        budget: int,
        before: Sequence[int],
        retokenizer: Retokenizer,
        spelling: Spelling,
        endings: Mapping[int, int],
    ) -> None:
        """`before`: the target's last tokens; `spelling` is the draft model's, and `endings` are
        its special tokens with the target's ids of them."""
        super().__init__(budget)
        self._before = before
        self._retokenizer = retokenizer
        self._spelling = spelling
        self._endings = endings
        self._text = b""
        self._ends: list[int] = []  # of the text after each token drafted
        self._chances: list[float] = []
        self._ending: int | None = None

    def _add(self, logits: Tensor) -> None:
        law = logits[0].float().softmax(dim=-1)
        chance, token = (part.item() for part in law.max(dim=-1))
        word = self._spelling.of(int(token))
        reached = self._chances[-1] if self._chances else 1.0
        if word is None:
            self._ending = self._endings.get(int(token))
            self.is_over = True
            if self._ending is None:
                return
        self._text += word or b""
        self._ends.append(len(self._text))
        self._chances.append(reached * chance)
        self.read.append(int(token))
        # The last token may still grow with the text: one more shows that it does not.
        self.is_over = self.is_over or len(self._cut()[0]) > self._budget

    def _cut(self) -> tuple[list[int], list[float]]:
        """Return the target's tokens for the text, and how likely each is to be reached."""
        found = self._retokenizer.go_on(self._before, self._text)
        last = len(self._ends) - 1
        return found.ids, [
            self._chances[min(last, bisect_left(self._ends, end))] for end in found.ends
        ]

    def tree(self) -> DraftTree:
        if not self._ends:
            return NO_DRAFT
        tokens, chances = self._cut()
        if self._ending is not None:
            tokens, chances = [*tokens, self._ending], [*chances, self._chances[-1]]
        count = self._budget
        return DraftTree.chain(tokens[:count], chances=chances[:count])
