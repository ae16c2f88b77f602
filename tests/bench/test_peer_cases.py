"""Which cases a peer has, and what is said of those it cannot have."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.bench.base import Case
from outrider.bench.peers import PEERS, plan_peer
from outrider.bench.peers.kinds import find_kind
from outrider.errors import OptionError


def plan(name: str, **options: Any) -> Any:
    asked: dict[str, Any] = {"temperatures": (0.0,), "batches": (1,), "weights": "float32"}
    return plan_peer(name, **(asked | {"draft_model": "small"} | options))


def modes(cases: tuple[Case, ...]) -> list[str]:
    return [case.drafter for case in cases]


EXPECTED = {
    "transformers": ["none", "prompt-lookup", "assisted"],
    "vllm": ["none", "ngram", "draft-model", "eagle3"],
    "llama.cpp": ["none", "prompt-lookup"],
    "openvino": ["none", "prompt-lookup"],
}


@pytest.mark.parametrize("name", PEERS)
def test_every_mode_of_a_peer_is_a_case_that_begins_with_plain_decoding(name: str) -> None:
    found = plan(name)
    assert modes(found.cases) == EXPECTED[name]
    assert {case.engine for case in found.cases} == {name}
    assert found.notes == ()


def test_temperatures_and_batches_are_each_with_each() -> None:
    found = plan("openvino", temperatures=(0.0, 1.0), batches=(1, 4))
    assert found.cases == tuple(
        Case(mode, "openvino", "float32", temperature=temperature, batch=batch)
        for mode in ("none", "prompt-lookup")
        for temperature in (0.0, 1.0)
        for batch in (1, 4)
    )


def test_what_a_peer_cannot_do_is_left_out_and_said() -> None:
    found = plan("transformers", batches=(1, 4))
    assert [(case.drafter, case.batch) for case in found.cases] == [
        ("none", 1),
        ("none", 4),
        ("prompt-lookup", 1),
        ("assisted", 1),
    ]
    assert found.notes == (
        "transformers prompt-lookup decodes one prompt at a time: no larger batches",
        "transformers assisted decodes one prompt at a time: no larger batches",
    )


def test_a_mode_without_what_it_drafts_with_is_left_out_and_said() -> None:
    found = plan("vllm", draft_model=None, has_head=False)
    assert modes(found.cases) == ["none", "ngram"]
    assert found.notes == (
        "vllm draft-model is left out: no draft model was given",
        "vllm eagle3 is left out: there is no EAGLE-3 head for the target",
    )


def test_weights_a_peer_does_not_take_leave_all_of_it_out() -> None:
    found = plan("vllm", weights="int8")
    assert found.cases == ()
    assert found.notes == ("vllm is compared with float32 and bfloat16 weights only, not int8",)


def test_a_peer_names_its_own_type_of_weights() -> None:
    assert {case.weights for case in plan("llama.cpp", weights="int8").cases} == {"q8_0"}
    assert {case.weights for case in plan("openvino", weights="int8").cases} == {"int8"}


def test_an_unknown_peer_or_mode_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(OptionError, match=r"peer 'x' is unknown; known are transformers, vllm, "):
        plan("x")
    with pytest.raises(OptionError, match=r"vllm has no mode 'x'; it has none, ngram, "):
        find_kind("vllm").mode("x")
