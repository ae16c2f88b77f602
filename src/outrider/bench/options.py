"""What a benchmark is asked to compare, and how."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from outrider.bench.base import OWN, Case
from outrider.bench.drafter_sets import DrafterSet
from outrider.errors import OptionError
from outrider.types import LossyRule, Rule
from outrider.verification.lossy import Kind, parse_lossy

_COMMA = re.compile(rf",(?=(?:{'|'.join(get_args(Kind))}):)")  # others part a rule's numbers


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Drafters, temperatures, batches and rules, each with each; raises OptionError."""

    drafter_sets: tuple[DrafterSet, ...]
    """Plain decoding first."""
    temperatures: tuple[float, ...] = (0.0,)
    batches: tuple[int, ...] = (1,)
    rules: tuple[Rule, ...] = ("match",)
    lossy: tuple[LossyRule, ...] = ()
    """Beside the rules: what they let be written is not what the target says."""
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
            if not getattr(self, name):
                raise OptionError(f"{name} is empty; name at least one")
        for name in ("temperatures", "batches", "rules", "lossy"):
            _require_each_once(name, getattr(self, name))
        if self.lossy and not any(one.specs for one in self.drafter_sets):
            raise OptionError(
                f"lossy is {str(self.lossy[0])!r}, and nothing drafts: name a drafter"
            )
        counts = [("batch", batch) for batch in self.batches]
        counts.append(("repeats", self.repeats))
        if self.peer_processes is not None:
            counts.append(("peer_processes", self.peer_processes))
        for name, count in counts:
            if count < 1:
                raise OptionError(f"{name} is {count}; it must be an integer of at least 1")
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise OptionError(f"max_minutes is {self.max_minutes:g}; it must be more than 0")

    def own_cases(self, weights: str, model: str = "") -> dict[Case, DrafterSet]:
        """Return outrider's own cases with weights of a type, and the drafters of each.

        `model` stands in the target's place, if it is not the target: no rule is compared there.
        """
        return {
            Case(one.text, OWN, weights, temperature, batch, rule, lossy, model): one
            for temperature in self.temperatures
            for batch in self.batches
            for one in self.drafter_sets
            for rule, lossy in self._verifying(one, model)
        }

    def _verifying(self, drafters: DrafterSet, model: str) -> list[tuple[Rule, str]]:
        if model or not drafters.specs:
            return [("match", "")]
        return [*((rule, "") for rule in self.rules), *(("match", str(one)) for one in self.lossy)]


def parse_lossy_rules(text: str) -> tuple[LossyRule, ...]:
    """Read "typical:0.09,0.3,fly:6,0.3"; raises OptionError."""
    return tuple(map(parse_lossy, _COMMA.split(text)))


def _require_each_once(name: str, values: Sequence[object]) -> None:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise OptionError(f"{name} names {value} twice; name each once")
