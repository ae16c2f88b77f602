"""The target as a teacher: its hidden states of a batch, and what it says after each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from outrider.targets.base import NORMED
from outrider.targets.features import FeatureTap, side_by_side
from outrider.training.base import Batch
from outrider.training.feature_store import FeatureStore

_ROWS = 512  # whose logits over the whole vocabulary are held at once


@dataclass(frozen=True, slots=True, eq=False)
class Lecture:
    """What a target makes of a batch: `features` [B, T, F] and `normed` [B, T, H]."""

    features: Tensor
    normed: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What the target says at some rows, to a drafter that knows D of its token ids.

    `p` [R, D] is the target's probability of each of them. `likeliest` [R] is the column of the
    likeliest, and `is_known` [R] says whether the target finds no other token likelier.
    """

    p: Tensor
    likeliest: Tensor
    is_known: Tensor

    def rows(self, index: Tensor) -> Answers:
        """Return the answers at some of the rows."""
        return Answers(self.p[index], self.likeliest[index], self.is_known[index])


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class Teacher:
    """A frozen target that is asked batch by batch."""

    def __init__(
        self,
        model: PreTrainedModel,
        layers: Sequence[int],
        ids: Tensor | None = None,
        store: FeatureStore | None = None,
    ) -> None:
        """`layers` are those whose states are the features; `ids` the token ids drafted, if not
        all of them are. A `store` keeps states of these layers, and of `NORMED`.
        """
        self.model = model
        self.ids = ids
        self._store = store
        self._tap = FeatureTap(model, (*layers, NORMED))
        get_output: Any = model.get_output_embeddings  # untyped there
        self._head = get_output()
        self._weight: Tensor = self._head.weight
        self._drafted: Tensor | None = None

    @torch.no_grad()
    def teach(self, batch: Batch) -> Lecture:
        """Run the target over a batch, if its states are not all kept already."""
        *states, normed = self._stored(batch) or self._computed(batch)
        return Lecture(side_by_side(states) if states else normed, normed)

    def _computed(self, batch: Batch) -> list[Tensor]:
        """Return the states [B, T, H] of each layer; padding is last, so that no token sees it."""
        base: Any = self._tap.base
        with self._tap.on():
            base(input_ids=batch.ids, use_cache=False)
        states = list(self._tap.states())
        if self._store is not None:
            for row, ids in enumerate(batch.texts):
                self._store.write(ids, torch.stack([part[row, : len(ids)] for part in states]))
        return states

    def _stored(self, batch: Batch) -> list[Tensor] | None:
        """Return the same, read from the store; None where a text is missing there."""
        if self._store is None:
            return None
        found = []
        for ids in batch.texts:
            states = self._store.read(ids)
            if states is None:
                return None
            found.append(functional.pad(states, (0, 0, 0, batch.ids.shape[1] - len(ids))))
        return list(torch.stack(found, dim=1).to(batch.ids.device))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return what the target's output layer makes of a drafter's states [R, H]: [R, D]."""
        return functional.linear(hidden, self._rows(hidden.dtype))

    def _rows(self, dtype: torch.dtype) -> Tensor:
        """Return the output layer's rows of the token ids drafted; the target itself learns not."""
        if self._drafted is None or self._drafted.dtype != dtype:
            weight = self._weight.detach()
            self._drafted = (weight if self.ids is None else weight[self.ids]).to(dtype)
        return self._drafted

    @torch.no_grad()
    def answers(self, normed: Tensor) -> Answers:
        """Return what the target says at rows of its own final states [R, H]."""
        found = [self._answers(rows) for rows in torch.split(normed, _ROWS)]
        return Answers(*(torch.cat(parts) for parts in zip(*found, strict=True)))

    def _answers(self, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = _wide(self._head(normed))
        best = logits.amax(dim=-1)
        whole = logits.logsumexp(dim=-1, keepdim=True)
        drafted = logits if self.ids is None else logits[:, self.ids]
        p = (drafted - whole).exp_()
        highest, likeliest = p.max(dim=-1)
        # Rounding may part the two ways to the same number.
        is_known = highest >= (best - whole[:, 0]).exp() * (1 - 1e-5)
        return p, likeliest, is_known
