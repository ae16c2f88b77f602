"""What a benchmark sets out to do: with a log, all that is needed to write its report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from outrider.bench.base import HeldWeights
from outrider.bench.plan import Plan
from outrider.machine import Machine


@dataclass(frozen=True, slots=True)
class Setup:
    """Who decodes what, on what machine, by which command."""

    target: str
    workload: str
    plan: Plan
    command: str
    machine: Machine
    passes: tuple[str, ...] = ()
    """How passes of outrider's targets are run, a sentence each."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
    held: tuple[HeldWeights, ...] = ()
    """What outrider's models hold: the target first, with its first type of weights."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; of the prompts their names and tasks alone."""
        prompts = tuple(replace(prompt, ids=()) for prompt in self.plan.prompts)
        return asdict(replace(self, plan=replace(self.plan, prompts=prompts)))
