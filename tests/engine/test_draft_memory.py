"""What drafts hold of a vocabulary's width grows with the requests that run, and with no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from outrider.drafters.model import ModelDrafter
from outrider.engine.engine import Engine
from outrider.types import DraftTree
from support.runs import collect, draft_model, make_request, shared_target
from support.tiny import VOCAB, random_ids, shared_model

BYTES = shared_model().dtype.itemsize


@pytest.mark.parametrize("running", [1, 2, 5])
def test_laws_of_drafts_take_what_the_running_requests_need(
    running: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIMIT-5: room for 32 requests is no reason to hold the laws of 32 drafts."""
    held: list[int] = []
    propose = ModelDrafter.propose

    def measured(
        self: ModelDrafter, states: Sequence[Any], budgets: Sequence[int]
    ) -> list[DraftTree]:
        trees = propose(self, states, budgets)
        stores = [tree.q.untyped_storage() for tree in trees if tree.q is not None]
        held.append(sum({store.data_ptr(): store.nbytes() for store in stores}.values()))
        return trees

    monkeypatch.setattr(ModelDrafter, "propose", measured)
    engine = Engine(
        shared_target(), draft_model("noisy"), rule="rejection", max_draft=3, max_batch=32
    )
    wanted = [
        make_request(random_ids(6, seed), max_new_tokens=12, temperature=1.0, seed=seed)
        for seed in range(running)
    ]
    collect(engine, wanted)
    assert 0 < max(held) <= running * 3 * VOCAB * BYTES
