"""A smaller language model as the drafter (Leviathan et al. 2022; Chen et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from outrider.drafters.base import Drafter, DraftRequest, DraftSampler
from outrider.targets.base import Rows, Target
from outrider.types import DraftTree, TokenIds


@dataclass(slots=True)
class ModelState:
    """One request's tokens, and how the draft model's cache stands to them."""

    sequence: int
    sampler: DraftSampler
    tokens: list[int]
    drafted: list[int] = field(default_factory=list)
    """The last proposal; the cache may hold all of it but its last token."""


class ModelDrafter(Drafter[ModelState]):
    """Drafts a chain with a causal language model that shares the target's token ids.

    The cache is exact after every round: it keeps each drafted token that was accepted, and what
    was accepted but never read is read with the next proposal. Where the request outgrows the
    draft model's context, the drafter rests. A committed id that the draft model does not have is
    read as id 0: the drafts after it may be worse for it, the text never is.
    """

    name = "model"
    default_max_draft = 12

    def __init__(self, model: Target, *, vocab_size: int, shared_ids: int) -> None:
        """Draft with `model` for a target of `vocab_size` ids; ids from `shared_ids` on mean
        nothing to both and are never drafted.
        """
        self._model = model
        self._vocab_size = vocab_size
        self._shared_ids = min(shared_ids, vocab_size, model.vocab_size)

    def begin(self, request: DraftRequest) -> ModelState:
        sequence = self._model.open(min(request.max_tokens, self._model.max_positions))
        return ModelState(sequence, request.sampler, list(request.prompt_ids))

    def propose(self, states: Sequence[ModelState], budgets: Sequence[int]) -> list[DraftTree]:
        laws: list[list[Tensor | None]] = [[] for _ in states]
        lengths = []
        for state, budget in zip(states, budgets, strict=True):
            state.drafted = []
            room = self._model.max_positions - len(state.tokens)
            lengths.append(max(0, min(budget, room)))
        for step in range(max(lengths, default=0)):
            active = [i for i, length in enumerate(lengths) if step < length]
            scored = self._model.score([self._rows(states[i]) for i in active])
            for i, logits in zip(active, scored.logits, strict=True):
                state = states[i]
                self._model.commit(state.sequence, ())
                position = len(state.tokens) + step
                token, law = state.sampler.draw(self._over_target_ids(logits[0]), position)
                state.drafted.append(token)
                laws[i].append(law)
        return [
            DraftTree.chain(state.drafted, _stacked(rows))
            for state, rows in zip(states, laws, strict=True)
        ]

    def observe(
        self,
        states: Sequence[ModelState],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        for state, tokens in zip(states, committed, strict=True):
            kept = 0
            for drafted, token in zip(state.drafted, tokens, strict=False):
                if drafted != token:
                    break
                kept += 1
            valid = len(state.tokens) + kept
            state.tokens.extend(tokens)
            # The last token is always read again: its row is where the next draft begins.
            cached = self._model.cached(state.sequence)
            self._model.crop(state.sequence, min(cached, valid, len(state.tokens) - 1))
            state.drafted = []

    def end(self, state: ModelState) -> None:
        self._model.close(state.sequence)

    def _rows(self, state: ModelState) -> Rows:
        cached, committed = self._model.cached(state.sequence), len(state.tokens)
        unread = state.tokens[cached:] + state.drafted[max(0, cached - committed) :]
        known = self._model.vocab_size
        return Rows(state.sequence, tuple(token if token < known else 0 for token in unread))

    def _over_target_ids(self, logits: Tensor) -> Tensor:
        """Give draft logits the target's width [V], with no chance for ids not shared."""
        missing = self._vocab_size - self._shared_ids
        if missing == 0 and logits.shape[-1] == self._vocab_size:
            return logits
        return functional.pad(logits[: self._shared_ids], (0, missing), value=float("-inf"))


def _stacked(laws: Sequence[Tensor | None]) -> Tensor | None:
    rows = [law for law in laws if law is not None]
    return torch.stack(rows) if rows else None
