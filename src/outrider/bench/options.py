"""What a benchmark is asked to compare, and how."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from outrider.bench.alternatives import Alternative
from outrider.bench.base import OWN, Case
from outrider.errors import OptionError
from outrider.types import Rule


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Drafters, temperatures, batches and rules, each with each; raises OptionError."""

    alternatives: tuple[Alternative, ...]
    """Plain decoding first."""
    temperatures: tuple[float, ...] = (0.0,)
    batches: tuple[int, ...] = (1,)
    rules: tuple[Rule, ...] = ("match",)
    max_new_tokens: int = 128
    repeats: int = 3
    max_minutes: float | None = None
    peer_processes: int | None = None
    """Most processes of peers that are held at a time; None: all that there are."""

    def __post_init__(self) -> None:
        for temperature in self.temperatures:
            if not (math.isfinite(temperature) and temperature >= 0):
                raise OptionError(
                    f"temperature is {temperature}; it must be a number of at least 0"
                )
        for rule in self.rules:
            if rule not in get_args(Rule):
                known = ", ".join(get_args(Rule))
                raise OptionError(f"rule is {rule!r}; it must be one of {known}")
        for name in ("temperatures", "batches", "rules"):
            _require_each_once(name, getattr(self, name))
        counts = [("batch", batch) for batch in self.batches]
        counts.append(("repeats", self.repeats))
        if self.peer_processes is not None:
            counts.append(("peer_processes", self.peer_processes))
        for name, count in counts:
            if count < 1:
                raise OptionError(f"{name} is {count}; it must be an integer of at least 1")
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise OptionError(f"max_minutes is {self.max_minutes:g}; it must be more than 0")

    def own_cases(self, weights: str) -> dict[Case, Alternative]:
        """Return outrider's own cases with weights of a type, and the drafters of each."""
        return {
            Case(one.text, OWN, weights, temperature=temperature, batch=batch, rule=rule): one
            for temperature in self.temperatures
            for batch in self.batches
            for one in self.alternatives
            for rule in (self.rules if one.specs else ("match",))
        }


def _require_each_once(name: str, values: Sequence[object]) -> None:
    if not values:
        raise OptionError(f"{name} is empty; name at least one")
    for place, value in enumerate(values):
        if value in values[:place]:
            raise OptionError(f"{name} names {value} twice; name each once")
