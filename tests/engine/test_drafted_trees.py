"""Trees that a head drafts: asked for as large as they pay, and cut to what is worth its rows."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from outrider.engine.engine import Engine
from outrider.trees.layout import depths
from outrider.trees.shape import depth_for
from outrider.types import DraftTree
from support.machines import PLAIN_S, TEXT, flat, steep
from support.runs import collect, make_request
from support.scripted import ScriptedDrafter
from support.simulated import PassTime, SimulatedClock, SimulatedTarget

STEP = 0.05 * PLAIN_S


class TreeDrafter(ScriptedDrafter):
    """Knows the text at most places, and beside each guess has two that are never right."""

    name = "trees"
    default_max_draft = 31

    def __init__(self, clock: SimulatedClock, rate: float) -> None:
        super().__init__(self._tree)
        self._clock, self._rate = clock, rate

    def steps(self, budget: int) -> int:
        return depth_for(budget)

    def propose(self, states: Sequence[list[int]], budgets: Sequence[int]) -> list[DraftTree]:
        self._clock.now += STEP * max(map(self.steps, budgets))
        return super().propose(states, budgets)

    def _tree(self, context: tuple[int, ...], budget: int) -> DraftTree:
        tokens: list[int] = []
        parents: list[int] = []
        chances: list[float] = []
        above, reached = -1, 1.0
        for place in range(len(context) - 1, len(context) - 1 + self.steps(budget)):
            right = TEXT[place % len(TEXT)]
            is_known = Random(f"tree {place}").random() < self._rate
            first = len(tokens)
            for rank in range(min(3, budget - first)):
                is_right = is_known and rank == 0
                tokens.append(right if is_right else (right + 1 + rank) % 64)
                parents.append(above)
                chances.append(reached * (self._rate if rank == 0 else 0.03))
            if first == len(tokens):
                break
            above, reached = first, reached * self._rate
        return DraftTree(tuple(tokens), tuple(parents), None, tuple(chances))


def decode(
    pass_time: PassTime, rate: float | None, max_draft: int | str = "auto"
) -> tuple[float, SimulatedTarget, TreeDrafter | None]:
    clock = SimulatedClock()
    target = SimulatedTarget(TEXT, clock, pass_time)
    drafter = None if rate is None else TreeDrafter(clock, rate)
    engine = Engine(target, drafter, max_draft=max_draft, clock=clock)  # type: ignore[arg-type]
    (result,) = collect(engine, [make_request((1,), max_new_tokens=600)])
    assert result.token_ids == TEXT[:600]
    return clock.now, target, drafter


@pytest.mark.parametrize("rate", [0.6, 0.8, 0.95])
def test_nodes_that_are_hardly_ever_right_are_drafted_and_not_scored(rate: float) -> None:
    _, target, drafter = decode(steep, rate)
    assert drafter is not None
    rounds = [count for count in target.drafted if count]
    proposed = [tree for tree in drafter.proposals if len(tree)]
    mean_scored = sum(rounds) / len(rounds)
    mean_depth = sum(max(depths(tree)) for tree in proposed) / len(proposed)
    assert mean_scored <= mean_depth + 0.5  # one node a level, and not three


@pytest.mark.parametrize("pass_time", [flat, steep])
@pytest.mark.parametrize("rate", [0.6, 0.8, 0.95])
def test_trees_reach_nearly_the_speed_of_the_best_fixed_size(
    pass_time: PassTime, rate: float
) -> None:
    plain, *_ = decode(pass_time, None)
    fixed = min(decode(pass_time, rate, size)[0] for size in (1, 3, 7, 15, 31))
    found, *_ = decode(pass_time, rate)
    assert fixed < 0.9 * plain
    assert found < fixed / 0.94


@pytest.mark.parametrize("pass_time", [flat, steep])
def test_trees_that_are_never_right_cost_next_to_nothing(pass_time: PassTime) -> None:
    plain, *_ = decode(pass_time, None)
    found, *_ = decode(pass_time, 0.0)
    assert found < plain / 0.98


def test_a_fixed_draft_is_forecast_by_its_levels_and_not_by_its_nodes() -> None:
    clock = SimulatedClock()
    target = SimulatedTarget(TEXT, clock, steep)
    engine = Engine(target, TreeDrafter(clock, 0.8), max_draft=15, clock=clock)
    (result,) = collect(engine, [make_request((1,), max_new_tokens=300)])
    (choice,) = [one for one in result.stats.explain() if one.drafted == 12][:1]
    assert choice.predicted_s == pytest.approx(choice.seconds, rel=0.1)
