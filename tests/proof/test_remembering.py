"""A target that remembers says what the target itself says, and asks it once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from outrider.drafters.base import Drafter
from outrider.engine.engine import Engine
from outrider.proof.memory import RememberingTarget
from outrider.targets.base import NORMED, Rows, ScoredRows
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree
from support.heads import eagle_drafter, medusa_drafter
from support.runs import assert_same, collect, draft_model, make_request
from support.tiny import random_ids, shared_model

PROMPT = random_ids(6, 1)
TREE = DraftTree((3, 4, 5, 3), (-1, -1, 0, 1))
REQUESTS = [make_request(PROMPT, temperature=1.0, seed=seed, max_new_tokens=8) for seed in range(3)]


def both(layers: tuple[int, ...] = ()) -> tuple[TransformersTarget, RememberingTarget]:
    target = TransformersTarget(shared_model())
    return target, RememberingTarget(target, layers)


def assert_close(found: ScoredRows, expected: ScoredRows) -> None:
    for ours, theirs in ((found.logits, expected.logits), (found.features, expected.features)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_rows_and_features_are_the_targets() -> None:
    layers = (0, 2, NORMED)
    target, memory = both(layers)
    target.prepare(layers)
    handles = [one.open(40) for one in (target, memory)]
    for pending, tree, path in (
        (PROMPT, DraftTree(), ()),
        ((7,), TREE, (0, 2)),
        ((8,), DraftTree.chain((1, 2)), (0,)),
        ((7, 8), TREE, ()),
    ):
        for asked in ((2, NORMED), ()):
            expected, found = (
                one.score([Rows(handle, pending, tree)], asked)
                for one, handle in zip((target, memory), handles, strict=True)
            )
            assert_close(found, expected)
        for one, handle in zip((target, memory), handles, strict=True):
            one.commit(handle, path)
    assert memory.cached(handles[1]) == target.cached(handles[0]) == 13
    memory.crop(handles[1], 6)
    target.crop(handles[0], 6)
    rows = [
        one.score([Rows(h, (9,), TREE)]) for one, h in zip((target, memory), handles, strict=True)
    ]
    assert_close(rows[1], rows[0])
    memory.close(handles[1])


def test_a_context_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    target, memory = both()
    passes: list[Any] = []
    score = target.score

    def counted(*asked: Any) -> ScoredRows:
        passes.append(asked)
        return score(*asked)

    monkeypatch.setattr(target, "score", counted)
    handles = [memory.open(20) for _ in range(3)]
    rows = [Rows(handle, PROMPT, TREE) for handle in handles]
    memory.score(rows)
    memory.score(rows)
    assert len(passes) == 1
    assert torch.equal(memory.logits((*PROMPT, 3)), memory.score(rows[:1]).logits[0][1])
    assert len(passes) == 1
    assert not target._sequences


def test_forgetting_all_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, memory = both()
    monkeypatch.setattr(memory, "_most_rows", 1)
    sound = collect(Engine(both()[1]), REQUESTS)
    for found, expected in zip(collect(Engine(memory), REQUESTS), sound, strict=True):
        assert_same(found, expected)
    assert len(memory._logits) <= len(REQUESTS) + 1


DRAFTERS: dict[str, Callable[[], Drafter[Any]]] = {
    "eagle": lambda: eagle_drafter(shared_model()),
    "medusa": lambda: medusa_drafter(shared_model()),
    "model": lambda: draft_model("noisy"),
}


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("rule", ["match", "rejection"])
def test_drafters_draft_on_it_as_on_the_target(kind: str, rule: Any) -> None:
    build = DRAFTERS[kind]
    target, memory = both(build().feature_layers)
    expected = collect(Engine(target, build(), rule=rule, max_draft=4), REQUESTS)
    found = collect(Engine(memory, build(), rule=rule, max_draft=4), REQUESTS)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
        assert one.stats.accepted == other.stats.accepted
        assert one.stats.drafter_error is None


def test_layers_nobody_announced_are_refused() -> None:
    _, memory = both((0,))
    with pytest.raises(ValueError, match=r"\[1\] were not announced"):
        memory.prepare((0, 1))
