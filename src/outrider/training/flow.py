"""The batches of a run in order, epoch after epoch, from wherever it stands."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from outrider.errors import OptionError
from outrider.training.base import Batch

if TYPE_CHECKING:
    from outrider.training.settings import TrainOptions
    from outrider.training.state import Place


class Batches(Protocol):
    """Where batches come from, as a `Corpus` gives them."""

    @property
    def digest(self) -> str:
        """What tells these batches from others."""

    def num_batches(self, epoch: int) -> int:
        """Return how many batches an epoch has."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Give the batches of an epoch from number `start` on, the same ones every time."""


@dataclass(frozen=True, slots=True)
class Item:
    """A batch, its epoch, and the number of the batch behind it."""

    batch: Batch
    epoch: int
    next: int


class Flow:
    """The batches of a corpus as a run of certain options goes through them."""

    def __init__(self, corpus: Batches, options: TrainOptions) -> None:
        """Raises OptionError for a corpus without a batch."""
        self._corpus = corpus
        self._accumulate = options.accumulate
        self._epochs = options.epochs
        if options.epochs is None and options.max_steps is None:
            self._epochs = 1
        if not corpus.num_batches(0):
            raise OptionError("there is not one batch to train on")
        self.total_steps = self._count(options.max_steps)
        self.digest = corpus.digest

    def _count(self, most: int | None) -> int:
        if self._epochs is None:
            assert most is not None
            return most
        count = sum(self._corpus.num_batches(epoch) for epoch in range(self._epochs))
        steps = math.ceil(count / self._accumulate)
        return steps if most is None else min(steps, most)

    def groups(self, place: Place) -> Iterator[list[Item]]:
        """Give the batches of each step, from the place on; the last step may have fewer."""
        items = self._items(place)
        while group := list(itertools.islice(items, self._accumulate)):
            yield group

    def _items(self, place: Place) -> Iterator[Item]:
        start, last = place.batch, self._epochs
        for epoch in itertools.count(place.epoch) if last is None else range(place.epoch, last):
            for number, batch in enumerate(self._corpus.batches(epoch, start), start + 1):
                yield Item(batch, epoch, number)
            start = 0
