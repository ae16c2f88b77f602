"""Other programs: their cases among ours, and what they are run with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outrider.bench import contestants
from outrider.bench.base import Case
from outrider.bench.contestants import Contestants, find_peers
from outrider.bench.drafter_sets import parse_drafter_sets
from outrider.bench.options import BenchOptions
from outrider.bench.peers import PeerOptions, PeerRunner
from outrider.errors import OptionError


def find(*names: str, drafters: str = "suffix", **given: Any) -> Contestants:
    defaults: dict[str, Any] = {
        "target": "smollm2-135m",
        "weights": ["float32"],
        "device": "cpu",
        "pythons": {},
        "folder": Path("out"),
    }
    options = BenchOptions(parse_drafter_sets(drafters), batches=(1, 4))
    return find_peers(names, options, **defaults | given)


def test_peers_decode_in_our_settings_with_the_weights_they_know() -> None:
    found = find("transformers", weights=["float32", "int8"])
    assert Case("none", "transformers", batch=4) in found.cases
    assert {case.weights for case in found.cases} == {"float32"}
    assert any("not int8" in note for note in found.notes)
    assert found.made_with == {"peers": "transformers"}


def test_modes_that_need_a_draft_model_get_ours() -> None:
    assert not any(case.drafter == "assisted" for case in find("transformers").cases)
    found = find("transformers", drafters="suffix+model:org/small,eagle")
    assert any(case.drafter == "assisted" for case in found.cases)


def test_no_peers_are_no_cases() -> None:
    assert find().cases == ()


def test_a_peer_is_built_with_our_models_and_its_python(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[PeerOptions] = []
    monkeypatch.setattr(contestants, "LoadedPeer", lambda case, options: built.append(options))
    drafters = "model:org/small,eagle:/head"
    python = Path("/env/bin/python")
    found = find("vllm", drafters=drafters, target="smollm2-135m@int8", pythons={"vllm": python})
    assert found.build is not None
    found.build(Case("none", "vllm"), 99)
    assert built == [
        PeerOptions(
            target="smollm2-135m",
            draft_model="org/small",
            head="/head",
            python=python,
            context=99,
            batch=4,
            log_folder=Path("out/logs"),
        )
    ]


def test_temperatures_and_batches_of_a_mode_share_a_process() -> None:
    found = find("vllm")
    assert found.build is not None
    one, many, other = (
        found.build(Case(mode, "vllm", batch=batch), 99)
        for mode, batch in (("none", 1), ("none", 4), ("ngram", 1))
    )
    assert isinstance(one, PeerRunner) and isinstance(many, PeerRunner)
    assert one._peer is many._peer
    assert isinstance(other, PeerRunner) and other._peer is not one._peer


@pytest.mark.parametrize(
    ("names", "given", "message"),
    [
        (("vlm",), {}, "peer 'vlm' is unknown; known are transformers"),
        (("vllm", "vllm"), {}, "peers name vllm twice"),
        (("vllm",), {"pythons": {"openvino": Path("x")}}, "which is not compared"),
    ],
)
def test_wrong_peers_are_one_error(
    names: tuple[str, ...], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        find(*names, **given)
