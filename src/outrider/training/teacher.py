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
from outrider.training.logits import LogitShaping

_ROWS = 64  # whose logits over the whole vocabulary are held at once: few enough to be cached


@dataclass(frozen=True, slots=True, eq=False)
class Lecture:
    """What a target makes of a batch: `features` [B, T, F] and `normed` [B, T, H].

    `verdicts` [B, T, 2] are there if they are kept in a store (`Teacher.verdicts`).
    """

    features: Tensor
    normed: Tensor
    verdicts: Tensor | None = None

    def verdicts_at(self, rows: Tensor) -> Tensor | None:
        """Return the verdicts [R, 2] at some of the B * T rows, None if there are none."""
        return None if self.verdicts is None else self.verdicts.flatten(0, 1)[rows]


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What the target says at some rows, to a drafter that knows D of its token ids.

    `p` [R, D] is the target's probability of each of them. `is_known` [R] says whether the
    likeliest token of all is one of them, and `likeliest` [R] which column it then is.
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
        self._bias: Tensor | None = getattr(self._head, "bias", None)
        self.shaping = LogitShaping.of(model)
        """What the target does to the numbers of its output layer."""
        self._drafted: tuple[Tensor, Tensor | None] | None = None
        self._columns: Tensor | None = None

    @torch.no_grad()
    def teach(self, batch: Batch) -> Lecture:
        """Run the target over a batch, if its states are not all kept already."""
        *states, normed = self._stored(batch) or self._computed(batch)
        features = side_by_side(states) if states else normed
        return Lecture(features, normed, self._kept_verdicts(batch, normed))

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

    def _kept_verdicts(self, batch: Batch, normed: Tensor) -> Tensor | None:
        """Return the verdicts [B, T, 2] on a batch, found once for each text; None if not kept."""
        if self._store is None:
            return None
        rows = []
        for row, ids in enumerate(batch.texts):
            found = self._store.read_verdicts(ids)
            if found is None:
                found = self.verdicts(normed[row, : len(ids)]).cpu()
                self._store.write_verdicts(ids, found)
            rows.append(functional.pad(found, (0, 0, 0, normed.shape[1] - len(ids))))
        return torch.stack(rows).to(normed.device)

    @torch.no_grad()
    def verdicts(self, normed: Tensor) -> Tensor:
        """Return what needs the whole vocabulary, of rows of the target's final states [R, H].

        That is [R, 2] in float64: the logarithm of the sum of exp(logits), and the likeliest id.
        """
        found = [_verdict(self.shaping(self._head(rows))) for rows in torch.split(normed, _ROWS)]
        return torch.cat(found)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return what the target's output layer makes of states [R, H], not yet shaped: [R, D]."""
        return functional.linear(hidden, *self._layer(hidden.dtype))

    def _layer(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Return the output layer for the token ids drafted; the target itself learns not."""
        if self._drafted is None or self._drafted[0].dtype != dtype:
            parts = (self._weight, self._bias)
            weight, bias = (part if part is None else self._cut(part).to(dtype) for part in parts)
            assert weight is not None
            self._drafted = (weight, bias)
        return self._drafted

    def _cut(self, part: Tensor) -> Tensor:
        return part.detach() if self.ids is None else part.detach()[self.ids]

    @torch.no_grad()
    def answers(self, normed: Tensor, verdicts: Tensor | None = None) -> Answers:
        """Return what the target says at rows of its own final states [R, H].

        `verdicts` [R, 2] on these rows, where they are there, spare most of the vocabulary.
        """
        if verdicts is not None:
            return self._answers(_wide(self.shaping(self.logits(normed))), verdicts)
        found = [self._whole_answers(rows) for rows in torch.split(normed, _ROWS)]
        parts = zip(*((each.p, each.likeliest, each.is_known) for each in found), strict=True)
        return Answers(*(torch.cat(part) for part in parts))

    def _whole_answers(self, normed: Tensor) -> Answers:
        logits = self.shaping(self._head(normed))
        drafted = logits if self.ids is None else logits[:, self.ids]
        return self._answers(_wide(drafted), _verdict(logits))

    def _answers(self, drafted: Tensor, verdicts: Tensor) -> Answers:
        p = (drafted - verdicts[:, :1].to(drafted.dtype)).exp_()
        likeliest = verdicts[:, 1].long()
        if self.ids is None:
            return Answers(p, likeliest, torch.ones_like(likeliest, dtype=torch.bool))
        if self._columns is None:
            self._columns = torch.full((len(self._weight),), -1, device=self.ids.device)
            self._columns[self.ids] = torch.arange(len(self.ids), device=self.ids.device)
        columns = self._columns[likeliest]
        return Answers(p, columns.clamp_min(0), columns >= 0)


def _verdict(logits: Tensor) -> Tensor:
    """Return [R, 2]: the logarithm of the sum of exp(logits), and the place of the highest."""
    whole = _wide(logits).logsumexp(dim=-1)
    return torch.stack([whole.double(), logits.max(dim=-1).indices.double()], dim=-1)
