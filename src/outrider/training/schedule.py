"""The learning rate, as a function of the step alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Shape: TypeAlias = Literal["cosine", "constant"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A rate that rises in a straight line to its peak, then falls as half a cosine or stays."""

    peak: float
    total_steps: int
    warm_up_steps: int = 0
    shape: Shape = "cosine"
    floor: float = 0.0
    """What is left of the peak at the last step, as a share of it."""

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, the first of which is 1.

        The last step of the warm-up has the peak, the last step of all the floor.
        """
        if step < self.warm_up_steps:
            return self.peak * step / self.warm_up_steps
        if self.shape == "constant":
            return self.peak
        first = max(self.warm_up_steps, 1)
        way = min(1.0, (step - first) / max(1, self.total_steps - first))
        height = 0.5 * (1 + math.cos(math.pi * way))
        return self.peak * (self.floor + (1 - self.floor) * height)
