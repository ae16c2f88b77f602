"""Drafters are warm before they are judged."""

from __future__ import annotations

from outrider.drafters.ngram import NgramDrafter
from outrider.engine.warming import warm_up
from outrider.types import DraftTree
from support.scripted import ScriptedDrafter, ScriptedTarget


def test_drafters_but_lookups_propose_and_nothing_is_left_behind() -> None:
    target = ScriptedTarget(lambda _: [0.0, 1.0, 0.0, 0.0], 4)
    drafter, lookup = ScriptedDrafter(lambda *_: DraftTree((1,), (-1,))), NgramDrafter()
    warm_up(target, [lookup])
    assert not target.passes
    warm_up(target, [lookup, drafter])
    assert drafter.proposals and drafter.open_states == 0
    assert not target.held
