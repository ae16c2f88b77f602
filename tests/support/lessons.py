"""A toy lesson and its batches: a linear layer with dropout that learns what comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import torch
from torch import nn

from outrider.checkpoints.base import Checkpoint
from outrider.training.base import Batch, Lesson, Marks, Sample, batch_of
from outrider.training.losses import acceptance

WORDS = 8


class ToyModule(nn.Module):
    """Guesses the next token from the one before; has a buffer and a frozen parameter too."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(torch.randn(WORDS, WORDS, generator=generator))
        self.bias = nn.Parameter(torch.zeros(WORDS))
        self.fixed = nn.Parameter(torch.ones(WORDS), requires_grad=False)
        self.dropout = nn.Dropout(0.2)
        self.register_buffer("ids", torch.arange(WORDS))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        known: torch.Tensor = self.dropout(self.table)[ids] * self.fixed + self.bias
        return known


class ToyLesson(Lesson):
    """Learns from batches; `spoil` may change a loss, by how many batches were seen before."""

    def __init__(
        self, seed: int = 0, *, spoil: Callable[[int, torch.Tensor], torch.Tensor] | None = None
    ) -> None:
        self.module = ToyModule(seed)
        self.seen = 0
        self._spoil = spoil

    def marks(self, batch: Batch) -> Marks:
        logits = self.module(batch.ids[:, :-1])[batch.counts[:, 1:]]
        wanted = batch.ids[:, 1:][batch.counts[:, 1:]]
        p = nn.functional.one_hot(wanted, WORDS).float()
        loss = nn.functional.cross_entropy(logits.float(), wanted)
        if self.module.training:
            if self._spoil is not None:
                loss = self._spoil(self.seen, loss)
            self.seen += 1
        alpha = float(acceptance(p, logits.detach().float()).mean())
        match = float((logits.argmax(-1) == wanted).float().mean())
        return Marks(loss, (alpha, alpha / 2), (match, match / 2))

    def finished(self) -> Checkpoint:
        raise NotImplementedError


class ToyBatches:
    """So many batches an epoch, other ones each epoch."""

    def __init__(self, count: int = 7, seed: int = 0, samples: int = 2) -> None:
        self._count, self._seed, self._samples = count, seed, samples

    @property
    def digest(self) -> str:
        return f"{self._count} {self._seed} {self._samples}"

    def num_batches(self, epoch: int) -> int:
        return self._count

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for number in range(start, self._count):
            yield batch_of([self._sample(epoch, number, one) for one in range(self._samples)])

    def _sample(self, *place: int) -> Sample:
        random = Random(f"{self._seed} {place}")
        first = random.randrange(WORDS)
        length = random.randint(4, 8)
        return Sample(tuple((first + 3 * step) % WORDS for step in range(length)), 1)
