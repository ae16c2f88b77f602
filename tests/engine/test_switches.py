"""What a request says of speculation, honoured round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from scheduling import Log, run_all, telling_target, told

from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.engine.result import Result
from outrider.errors import OptionError
from outrider.types import DraftTree, Rule
from support.machines import Machine, drafter
from support.runs import assert_same, decode, draft_model, make_request, shared_target
from support.scripted import ScriptedDrafter, random_trees
from support.tiny import VOCAB, random_ids


def named(name: str, *, trees: bool = False, steps: int = 15) -> ScriptedDrafter:
    """Return a drafter that knows the telling target's text, and has so many tokens at most."""
    found = ScriptedDrafter(
        lambda context, budget: DraftTree.chain(told(context, min(budget, steps)))
    )
    found.name, found.drafts_trees = name, trees
    return found


def run(engine: Engine, *switches: dict[str, Any]) -> list[Result]:
    plain = make_request((1, 2), max_new_tokens=24)
    wanted: Sequence[Request] = [replace(plain, **switch) for switch in switches]
    found = run_all(engine.scheduler(), wanted)
    assert {result.token_ids for result in found} == {told((1, 2), 24)}
    return found


@pytest.mark.parametrize("max_draft", [5, "auto"])
def test_a_request_may_do_without_speculation_beside_others_that_do_not(
    max_draft: int | Literal["auto"],
) -> None:
    engine = Engine(telling_target(), named("one"), max_draft=max_draft)
    off, on = run(engine, {"speculate": False}, {})
    assert (off.stats.proposed, off.stats.rounds) == (0, 24)
    assert on.stats.proposed > 0
    assert engine.drafters[0].open_states == 0  # type: ignore[attr-defined]


def test_a_request_caps_its_own_drafts_and_never_lengthens_them() -> None:
    engine = Engine(telling_target(), named("one"), max_draft=5)
    found = run(engine, {"max_draft": 2}, {}, {"max_draft": 50}, {"max_draft": 0})
    assert [len(result.stats.proposed_at) for result in found] == [2, 5, 5, 0]
    assert [result.stats.rounds for result in found] == [8, 4, 4, 24]


def test_a_cap_holds_for_trees_and_for_lengths_that_are_decided() -> None:
    prompt = random_ids(9)
    lengths: tuple[int | Literal["auto"], ...] = (7, "auto")
    for max_draft in lengths:
        engine = Engine(shared_target(), random_trees(VOCAB), max_draft=max_draft)
        request = replace(make_request(prompt, max_new_tokens=30), max_draft=2)
        scheduler = engine.scheduler()
        log = Log()
        ticket = scheduler.submit(request)
        proposed = 0
        while scheduler.has_work:
            for event in log.step(scheduler):
                now = event.state.stats.proposed  # type: ignore[union-attr]
                assert now - proposed <= 2
                proposed = now
        assert_same(log.results[ticket], decode(shared_target(), request))


def test_a_request_may_name_the_drafters_it_wants() -> None:
    drafters = [named("long", steps=7), named("short", steps=2), named("short", steps=1)]
    engine = Engine(telling_target(), drafters, max_draft=7)
    found = run(
        engine,
        {},
        {"drafters": ("short",)},
        {"drafters": ("short 2",)},
        {"drafters": ("short 2", "long")},
        {"drafters": ()},
    )
    assert [len(result.stats.proposed_at) for result in found] == [7, 2, 1, 7, 0]


def test_what_a_request_wants_of_speculation_is_checked() -> None:
    engine = Engine(telling_target(), [named("one"), named("trees", trees=True)], max_draft=3)
    request = make_request((1,))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"drafters": ("one", "two")}, "drafters holds 'two'; it must be one of one, trees"),
        ({"max_draft": -1}, "max_draft is -1; it must be None or an integer of at least 0"),
        ({"rule": "lenient"}, "rule is 'lenient'; it must be one of match"),
        ({"rule": "block"}, "rule is 'block', which verifies chains only, but drafter trees"),
    ]
    for switch, reason in wrong:
        with pytest.raises(OptionError, match=reason):
            engine.scheduler().submit(replace(request, **switch))
        with pytest.raises(OptionError, match=reason):
            engine.check_request(replace(request, **switch))
    engine.check_request(replace(request, rule="block", drafters=("one",)))
    with pytest.raises(OptionError, match="absent: the engine has no drafters"):
        Engine(telling_target()).check_request(replace(request, drafters=("one",)))


@pytest.mark.parametrize("rule", ["match", "rejection", "block", "traversal"])
def test_a_request_under_a_rule_of_its_own_says_what_an_engine_of_that_rule_says(
    rule: Rule,
) -> None:
    request = make_request(random_ids(8), max_new_tokens=20, temperature=1.0, seed=6)
    other: Rule = "rejection" if rule == "match" else "match"
    engine = Engine(shared_target(), draft_model("noisy"), rule=other, max_draft=4)
    own, its = run_all(engine.scheduler(), [replace(request, rule=rule), request])
    for found, expected in ((own, rule), (its, other)):
        alone = decode(shared_target(), request, draft_model("noisy"), rule=expected, max_draft=4)
        assert_same(found, alone)
        assert found.stats.accepted_at == alone.stats.accepted_at


def test_rounds_without_any_speculation_say_so_and_teach_nothing_of_drafts() -> None:
    machine = Machine.of([drafter(0.9)])
    machine.run(200)
    gain = machine.engine._rounds._controller.gain
    scheduler = machine.engine.scheduler()
    off = replace(make_request((1,), max_new_tokens=60), speculate=False)
    run_all(scheduler, [off])
    snapshot = scheduler.snapshot()
    assert (snapshot.last_reason, snapshot.is_speculating) == ("switched off", False)
    assert snapshot.rounds_by_reason == {"switched off": 60}
    assert machine.engine._rounds._controller.gain == gain > 2
