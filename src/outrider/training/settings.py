"""What may be chosen of a training run, and the range of each choice."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, get_args

from outrider.errors import OptionError
from outrider.training.optimizer import OptimizerName
from outrider.training.schedule import Schedule, Shape

# What says how long, and how often something is kept, but not which weights come about.
_INCIDENTAL = frozenset({"max_hours", "save_every", "evaluate_every"})


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainOptions:
    """Options of a training run. Any value out of its range is an `OptionError`."""

    optimizer: OptimizerName = "adamw"
    learning_rate: float = 3e-4
    """The highest; see `Schedule`."""
    schedule: Shape = "cosine"
    warm_up: float = 0.03
    """Share of all steps in which the learning rate rises."""
    floor: float = 0.05
    """What a cosine leaves of the learning rate in the end, as a share."""
    weight_decay: float = 0.01
    """Of matrices; norms and biases do not decay."""
    clip: float = 1.0
    """The largest norm of a gradient; a longer one is shortened to it."""
    accumulate: int = 1
    """Batches a step learns from, as if they were one."""
    epochs: int | None = None
    """Rounds through the corpus: one, or as many as `max_steps` takes where that is given."""
    max_steps: int | None = None
    max_hours: float | None = None
    """All runs of a folder together. The learning rate does not hurry because of it."""
    save_every: int = 200
    evaluate_every: int = 200
    """Steps between two looks at the batches held out."""
    autocast: bool = False
    """Whether products are computed in bfloat16; weights and optimizer stay in float32."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("schedule", Shape), ("optimizer", OptimizerName)):
            if getattr(self, name) not in get_args(choices):
                known = ", ".join(get_args(choices))
                raise OptionError(f"{name} is {getattr(self, name)!r}; it must be one of {known}")
        for name in ("learning_rate", "clip", "max_hours"):
            value = getattr(self, name)
            if value is None and name == "max_hours":
                continue
            if not (_is_number(value) and 0 < value < math.inf):
                raise OptionError(f"{name} is {value!r}; it must be a number above 0")
        for name in ("warm_up", "floor", "weight_decay"):
            value = getattr(self, name)
            if not (_is_number(value) and 0 <= value <= 1):
                raise OptionError(f"{name} is {value!r}; it must be a number from 0 to 1")
        for name in ("accumulate", "epochs", "max_steps", "save_every", "evaluate_every", "seed"):
            value, least = getattr(self, name), 0 if name == "seed" else 1
            if value is None and name in ("epochs", "max_steps"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise OptionError(f"{name} is {value!r}; it must be an integer of at least {least}")
        if not isinstance(self.autocast, bool):
            raise OptionError(f"autocast is {self.autocast!r}; it must be True or False")

    def plan(self, total_steps: int) -> Schedule:
        """Return the schedule of a run of so many steps."""
        return Schedule(
            peak=self.learning_rate,
            total_steps=total_steps,
            warm_up_steps=round(self.warm_up * total_steps),
            shape=self.schedule,
            floor=self.floor,
        )

    def course(self) -> dict[str, Any]:
        """Return the options that a resumed run must share: those the weights depend on."""
        return {name: value for name, value in asdict(self).items() if name not in _INCIDENTAL}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
