"""What heads learn copying from: real texts and made-up ones, and from where each token comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from torch.nn import functional

from outrider.training.base import Batch, Sample, batch_of
from outrider.training.copying.recurrence import NOWHERE, continuations, patchwork
from outrider.training.corpus import cut
from outrider.training.teacher import Teacher

_MADE_UP = 400  # tokens of a made-up text
_LONGEST = 512  # tokens of a real one
_TOKENS = 1600  # of a batch


@dataclass(frozen=True, slots=True, eq=False)
class CopyingBatch:
    """Texts, and for each token where the text went on when what ends there was last written."""

    batch: Batch
    sources: Tensor
    """[B, T]: that place, `NOWHERE` if it was not written before."""
    following: Tensor
    """[B, T]: the next token as a column of what is drafted, -1 if there is none to be drafted."""
    counts: Tensor
    """[B, T] bool: the places where it is to be said: in made-up texts, those that are copied."""

    @property
    def found(self) -> tuple[Tensor, Tensor]:
        """Rows and places of the tokens that go on from somewhere."""
        rows, places = (self.batch.real & (self.sources != NOWHERE)).nonzero(as_tuple=True)
        return rows, places

    @property
    def lost(self) -> tuple[Tensor, Tensor]:
        """Rows and places of the tokens that do not."""
        rows, places = (self.batch.real & (self.sources == NOWHERE)).nonzero(as_tuple=True)
        return rows, places


class CopyingTexts:
    """Gives out batches, the same ones for the same seed."""

    def __init__(
        self, samples: Sequence[Sample], teacher: Teacher, vocab_size: int, seed: int
    ) -> None:
        self._samples = samples
        self._random = Random(f"{seed}:copying")
        self._device = teacher.model.device
        ids = torch.arange(vocab_size) if teacher.ids is None else teacher.ids.cpu()
        self.columns = torch.full((vocab_size,), -1)
        self.columns[ids] = torch.arange(len(ids))
        # Half of all draws are of what is drafted: there is something to be said then.
        self._words = [*range(vocab_size), *ids[torch.arange(vocab_size) % len(ids)].tolist()]

    def made_up(self) -> CopyingBatch:
        """Return texts of random words, pieces of which come again."""
        first = self._random.choice(self._samples).ids[0]
        size = _MADE_UP - 1
        texts = [
            (first, *patchwork(self._words, size, self._random)) for _ in range(_TOKENS // size)
        ]
        batch, sources = self._batch([Sample(text) for text in texts])
        next_ids = functional.pad(batch.ids[:, 1:], (0, 1), value=-1)
        is_copied = torch.gather(batch.ids, 1, sources.clamp_min(0)) == next_ids
        return self._asked(batch, sources, is_copied & (sources != NOWHERE))

    def real(self) -> CopyingBatch:
        """Return some of the samples."""
        found: list[Sample] = []
        while not found or sum(len(one.ids) for one in found) < _TOKENS:
            found.append(cut(self._random.choice(self._samples), _LONGEST))
        batch, sources = self._batch(found)
        return self._asked(batch, sources, functional.pad(batch.counts[:, 1:], (0, 1)))

    def _batch(self, samples: Sequence[Sample]) -> tuple[Batch, Tensor]:
        batch = batch_of(samples)
        sources = torch.full(batch.ids.shape, NOWHERE)
        for row, ids in enumerate(batch.texts):
            sources[row, : len(ids)] = torch.tensor(continuations(ids))
        return batch, sources

    def _asked(self, batch: Batch, sources: Tensor, counts: Tensor) -> CopyingBatch:
        following = functional.pad(self.columns[batch.ids[:, 1:]], (0, 1), value=-1)
        counts = counts & batch.real & (following >= 0)
        ids, real, learnt = (one.to(self._device) for one in (batch.ids, batch.real, batch.counts))
        parts = (one.to(self._device) for one in (sources, following, counts))
        return CopyingBatch(Batch(ids, real, learnt), *parts)
