"""Draft lengths by load come from what was measured, and never from hope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from outrider.engine.acceptance import AcceptancePool
from outrider.engine.costs import DraftCosts, PassCosts
from outrider.engine.gains import Gains, Level
from outrider.scale.lengths import Costs, read_costs, schedule, single
from outrider.scale.schedule import span_for

FREE = {"fixed": 0.0, "step": 0.0, "unread": 0.0, "variance": [0.0, 0.0, 0.0]}
ALONE = {"requests": 1, "pass": 1.0}
"""Of proposals for one request, next to passes of a second."""


def passes(seconds: Callable[[int], float]) -> PassCosts:
    """Return the costs of a machine whose passes depend on their rows alone."""
    points = [
        (batch * width, 0.0, seconds(batch * width), batch)
        for batch in (1, 2, 4, 8)
        for width in (1, 2, 4, 8, 16)
    ]
    return PassCosts.measured(points)


def flat(rows: int) -> float:
    """A machine that reads weights: rows cost nothing up to 64, and then their number."""
    return max(1.0, rows / 64)


def steep(rows: int) -> float:
    """A machine where every row costs as much as the first."""
    return float(rows)


def costs(
    seconds: Callable[[int], float], survival: Sequence[float] = (), step: float = 0.0
) -> Costs:
    drafts = DraftCosts.from_dict({"batches": [FREE | ALONE | {"step": step}]})
    return Costs(passes(seconds), drafts, survival)


def test_a_larger_batch_never_drafts_further() -> None:
    known = costs(flat, [0.8**depth for depth in range(1, 16)], step=0.05)
    found = [span_for(schedule(known, "eagle3", 256), n).length for n in range(1, 257)]
    assert found[0] > 3
    assert all(later <= earlier for earlier, later in pairwise(found))
    assert found[-1] == 0


def test_where_every_row_costs_a_pass_nothing_is_drafted() -> None:
    known = costs(steep, [0.9**depth for depth in range(1, 16)])
    assert {span.length for span in schedule(known, "draft_model", 64)} == {0}
    assert single(known, 64) == 0
    assert schedule(known, "suffix", 64)[-1].length == 0


def test_the_length_is_the_one_with_the_most_tokens_a_second() -> None:
    known = costs(flat, [0.7**depth for depth in range(1, 16)], step=0.1)
    best = schedule(known, "eagle3", 1)[0].length
    rates = [(1 + sum(0.7**d for d in range(1, k + 1))) / (1 + 0.1 * k) for k in range(16)]
    assert best == rates.index(max(rates)) == 4


def test_a_gain_that_is_smaller_than_what_is_known_of_costs_is_left_out() -> None:
    for gain, length in ((0.01, 0), (0.05, 1)):
        assert schedule(costs(flat, [gain]), "eagle3", 1)[0].length == length


def test_a_dearer_drafter_drafts_less() -> None:
    survival = [0.8**depth for depth in range(1, 16)]
    steps = (0.0, 0.05, 0.2, 1.0)
    lengths = [schedule(costs(flat, survival, step), "draft_model", 1)[0].length for step in steps]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == 15 and lengths[-1] == 0


def test_the_price_of_a_row_is_the_least_chance_of_a_copied_token() -> None:
    known = costs(lambda rows: 1 + 0.1 * (rows - 1))
    first = schedule(known, "suffix", 1)[0]
    assert first.least_chance == pytest.approx(0.1, abs=0.01)
    chances = [span.least_chance for span in schedule(known, "suffix", 256)]
    assert chances == sorted(chances)


def test_one_length_for_all_loads_lies_between_those_of_the_loads() -> None:
    known = costs(flat, [0.8**depth for depth in range(1, 16)], step=0.05)
    lengths = [span.length for span in schedule(known, "eagle3", 256)]
    assert min(lengths) < single(known, 256) < max(lengths)


def record(levels: Sequence[Level] = (), drafts: int = 900) -> dict[str, Any]:
    gains, pool = Gains(), AcceptancePool()
    for _ in range(drafts if levels else 0):
        gains.learn(levels)
        pool.learn_chance(5, 0.5, True)
    known = {"batches": [FREE | ALONE | {"step": 0.01}]}
    return {"cost": known, "acceptance": pool.to_dict(), "gains": gains.to_list()}


def test_a_branching_draft_is_taken_for_no_more_than_its_likeliest_chain() -> None:
    chain = read_costs(passes(flat).to_dict(), record([Level(0.8), Level(0.6)]), "eagle3")
    tree = read_costs(passes(flat).to_dict(), record([Level(0.8, 4), Level(0.6, 4)]), "eagle3")
    assert chain.survival[:2] == pytest.approx([0.8, 0.6], rel=0.01)
    for one, other in zip(tree.survival, chain.survival, strict=True):
        assert 0 < one < other


def test_a_copy_of_two_tokens_goes_on_as_the_rule_of_succession_says() -> None:
    found = read_costs(passes(flat).to_dict(), record(), "ngram").survival
    assert found[:3] == pytest.approx([2 / 3, 2 / 4, 2 / 5])


def test_a_drafter_that_never_drafted_has_no_survival() -> None:
    assert read_costs(passes(flat).to_dict(), record(), "draft_model").survival == ()
    assert read_costs(passes(flat).to_dict(), None, "eagle3").survival == ()


def test_one_draft_says_nothing_of_a_drafter() -> None:
    """A drafter that a profile saw once, and saw fail, is not held to be useless at any load."""
    once = read_costs(passes(flat).to_dict(), record([Level(0.1)], drafts=1), "eagle3")
    assert once.survival == ()
    assert read_costs(passes(flat).to_dict(), record([Level(0.1)]), "eagle3").survival


def test_a_damaged_record_is_an_error() -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_costs({"knots": []}, record(), "eagle3")
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_costs(passes(flat).to_dict(), {"cost": 0.5}, "draft_model")
