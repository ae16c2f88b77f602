"""What the parts of training hand to each other: sequences, batches, lessons and what they give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from outrider.checkpoints.base import Checkpoint


@dataclass(frozen=True, slots=True)
class Sample:
    """A text to learn from: its token ids, and how many of them, from the start, are a prompt.

    What the target did not write itself (a prompt) is read and never learnt from; a plain text has
    no prompt, and all of it counts.
    """

    ids: tuple[int, ...]
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Samples side by side: `ids` [B, T] filled up with 0, what is real, and what counts."""

    ids: Tensor
    real: Tensor
    """[B, T] bool: the tokens of the samples; those that only fill up come last."""
    counts: Tensor
    """[B, T] bool: the tokens that are learnt, as what comes next."""

    @property
    def num_tokens(self) -> int:
        """Tokens that are learnt."""
        return int(self.counts.sum())

    @property
    def texts(self) -> list[tuple[int, ...]]:
        """The ids of each sample, without what fills up."""
        rows = zip(self.ids.tolist(), self.real.sum(dim=-1).tolist(), strict=True)
        return [tuple(ids[:size]) for ids, size in rows]


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """What a lesson gave: the loss to be lowered, and how good the drafter is at each depth."""

    loss: Tensor
    """A number, averaged over the tokens that count."""
    alphas: tuple[float, ...]
    """By depth, the mean acceptance sum min(p, q) against the target's distribution."""
    matches: tuple[float, ...]
    """By depth, how often the likeliest token is the target's likeliest."""


class Lesson(ABC):
    """One kind of drafter in training: it knows the target, and what it is to learn from it."""

    module: nn.Module
    """What is trained; its state dict is what a checkpoint keeps."""
    ids: Tensor | None = None
    """The token ids [D] that the drafter can draft, if not all of them."""

    @abstractmethod
    def marks(self, batch: Batch) -> Marks:
        """Return the loss of a batch, ready for `backward`, and how well it was known."""

    @abstractmethod
    def finished(self) -> Checkpoint:
        """Return the trained drafter as a checkpoint to be written."""


def batch_of(samples: Sequence[Sample], device: str = "cpu") -> Batch:
    """Lay out samples side by side, each padded to the longest."""
    width = max(len(sample.ids) for sample in samples)
    ids = torch.zeros(len(samples), width, dtype=torch.long)
    real = torch.zeros(len(samples), width, dtype=torch.bool)
    counts = torch.zeros(len(samples), width, dtype=torch.bool)
    for row, sample in enumerate(samples):
        size = len(sample.ids)
        ids[row, :size] = torch.tensor(sample.ids)
        real[row, :size] = True
        counts[row, sample.prompt_tokens : size] = True
    return Batch(ids.to(device), real.to(device), counts.to(device))


def shifted(rows: Tensor, by: int) -> Tensor:
    """Return rows [B, T] moved to the left, filled up with zeros."""
    return functional.pad(rows[:, by:], (0, min(by, rows.shape[1])))
