"""Engines on simulated machines: how long they take, and what they scored on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from outrider.engine.engine import Engine
from outrider.engine.result import Result
from support.runs import collect, make_request
from support.simulated import PassTime, SimulatedClock, SimulatedDrafter, SimulatedTarget
from support.tiny import random_ids

TEXT = random_ids(997, 5)
PLAIN_S = 0.03

Build = Callable[[SimulatedClock], SimulatedDrafter]


def flat(rows: int, attended: int) -> float:
    """A machine to which rows are almost free."""
    return PLAIN_S * (1 + 0.01 * (rows - 1))


def steep(rows: int, attended: int) -> float:
    """A machine to which eight rows cost half as much again as one."""
    return PLAIN_S * (1 + 0.07 * (rows - 1))


def drafter(rate: float | Callable[[int], float], step: float = 0.0, **options: Any) -> Build:
    """Return how to build a drafter whose steps take a share of a plain pass; 0 is a lookup."""
    options = {"is_lookup": step == 0} | options
    return lambda clock: SimulatedDrafter(TEXT, clock, rate, step=step * PLAIN_S, **options)


@dataclass
class Machine:
    """An engine, its target, its clock and its drafters."""

    engine: Engine
    target: SimulatedTarget
    clock: SimulatedClock
    drafters: Sequence[SimulatedDrafter]

    @classmethod
    def of(
        cls,
        builds: Sequence[Build] = (),
        pass_time: PassTime = steep,
        *,
        max_draft: int | Literal["auto"] = "auto",
        **options: Any,
    ) -> Machine:
        """Build an engine for a machine."""
        clock = SimulatedClock()
        target = SimulatedTarget(TEXT, clock, pass_time)
        drafters = [build(clock) for build in builds]
        engine = Engine(target, drafters, max_draft=max_draft, clock=clock, **options)
        return cls(engine, target, clock, drafters)

    def run(self, tokens: int, requests: int = 1) -> float:
        """Decode requests of so many tokens, and return the seconds it took."""
        started = self.clock.now
        self.decode(tokens, requests)
        return self.clock.now - started

    def decode(self, tokens: int, requests: int = 1) -> list[Result]:
        """Decode requests of so many tokens; what they say is checked."""
        found = collect(
            self.engine, [make_request((1,), max_new_tokens=tokens) for _ in range(requests)]
        )
        text = (TEXT * (tokens // len(TEXT) + 1))[:tokens]
        assert all(result.token_ids == text for result in found)
        return found
