"""How the rows of a pass get through the model: the part of a target that may be done in ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import torch
from torch import Tensor

from outrider.targets.work import Work


class Passes(ABC):
    """Runs the rows of several sequences through one model, over one cache.

    Every row is stored where its span says, and attends to what it may see.
    """

    seconds: float = 0.0
    """Time spent inside the model since this was last set to 0."""
    preferred_rows: int | None = None
    """Rows a sequence's share costs nothing extra to fill, if shapes are fixed."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def prepare(self, layers: Sequence[int]) -> None:
        """Get ready for passes that give the hidden states of these layers."""
        return

    @abstractmethod
    def run(self, works: Sequence[Work], layers: Sequence[int] = ()) -> None:
        """Run all rows of all works.

        Append to each one's `logits` those from its root on, and to its `features` the hidden
        states of the layers asked for (`Target.score`), of all its rows.
        """

    @abstractmethod
    def shaped(self, works: Sequence[Work], rows: int) -> list[Tensor]:
        """Run works of neighbouring slots in one pass of `rows` rows each; returns all logits."""

    @abstractmethod
    def rows(self, counts: Sequence[int]) -> int:
        """Return the rows computed for a pass over sequences of so many rows each."""

    def stored(self, tokens: int) -> int:
        """Return how far into a slot passes reach whose sequence holds at most so many tokens."""
        return tokens

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time of the body, all that the device does in it included, to `seconds`."""
        self._synchronize()
        started = perf_counter()
        yield
        self._synchronize()
        self.seconds += perf_counter() - started

    def _synchronize(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)
