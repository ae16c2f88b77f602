"""Models in the target's place: what may be named, and what is made of the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from outrider import load
from outrider.bench.alternatives import (
    Alternative,
    cut,
    load_alternative,
    parse_alternatives,
    weight_bytes,
)
from outrider.bench.weights import weights_of
from outrider.errors import OptionError
from support.files import save_tiny_model, word_tokenizer
from support.tiny import ARCHITECTURES, greedy_ids, random_ids, tiny_model

PROMPT = random_ids(9)


def test_an_alternative_is_a_type_of_weights_a_number_of_layers_or_a_model() -> None:
    assert parse_alternatives("org/big", ["int8", "cut:20", "org/small", "a.gguf"]) == (
        Alternative("int8", "org/big@int8"),
        Alternative("cut:20", "org/big", 20),
        Alternative("org/small", "org/small"),
        Alternative("a.gguf", "a.gguf"),
    )
    assert parse_alternatives("org/big", ()) == ()
    assert parse_alternatives("org/big@int8", ["cut:2"]) == (
        Alternative("cut:2", "org/big@int8", 2),
    )


@pytest.mark.parametrize(
    ("target", "names", "message"),
    [
        ("org/big", ["int8", "int8"], "name int8 twice"),
        ("org/big", ["int4"], "keeps weights in four bits on a processor"),
        ("org/big@int8", ["int8"], "quantised already"),
        ("org/big", ["cut:"], "is not cut:N"),
        ("org/big", ["cut:0"], "is not cut:N"),
        ("org/big", ["cut:-3"], "is not cut:N"),
        ("org/big", ["cut:1.5"], "is not cut:N"),
    ],
)
def test_what_cannot_be_had_is_one_error(target: str, names: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_alternatives(target, names)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_cut_model_is_one_that_was_built_with_its_first_layers_alone(architecture: str) -> None:
    whole = tiny_model(architecture, num_hidden_layers=2)
    expected = tiny_model(architecture, seed=1, num_hidden_layers=1, **_one_layer(architecture))
    weights = whole.state_dict()
    expected.load_state_dict({name: weights[name] for name in expected.state_dict()})
    cut(whole, 1, "cut:1")
    assert greedy_ids(whole, PROMPT, 12) == greedy_ids(expected, PROMPT, 12)
    decoder = load(whole, tokenizer=word_tokenizer(), profile=False)
    found = decoder.generate(PROMPT, max_new_tokens=12, ignore_eos=True)
    assert list(found.token_ids) == greedy_ids(expected, PROMPT, 12)


def _one_layer(architecture: str) -> dict[str, Any]:
    types = ARCHITECTURES[architecture].get("layer_types")
    return {} if types is None else {"layer_types": types[:1]}


@pytest.mark.parametrize("layers", [2, 3])
def test_a_cut_that_leaves_nothing_out_is_refused(layers: int) -> None:
    with pytest.raises(OptionError, match="the target has 2 layers; leave fewer"):
        cut(tiny_model(), layers, f"cut:{layers}")


def test_alternatives_are_loaded_as_the_target_is(tmp_path: Path) -> None:
    folder = str(save_tiny_model(tmp_path))
    target = load(folder, profile=False, numerics="invariant")
    loading = {"numerics": "invariant", "trust_remote_code": False}
    loaded = {
        one.text: load_alternative(one, target, max_batch=2, loading=loading)
        for one in parse_alternatives(folder, ["int8", "cut:1", folder])
    }
    assert {name: weights_of(one) for name, one in loaded.items()} == {
        "int8": "int8",
        "cut:1": weights_of(target),
        folder: weights_of(target),
    }
    assert {one.engine.target.numerics for one in loaded.values()} == {"invariant"}
    assert {one.engine.max_batch for one in loaded.values()} == {2}
    assert loaded["cut:1"].loaded.name == folder  # heads are looked for by that name
    sizes = {name: weight_bytes(one.loaded.model) for name, one in loaded.items()}
    whole = weight_bytes(target.loaded.model)
    assert sizes[folder] == whole > max(sizes["int8"], sizes["cut:1"])


def test_a_model_whose_ids_are_other_tokens_is_refused(tmp_path: Path) -> None:
    folder = str(save_tiny_model(tmp_path))
    target = load(folder, profile=False)
    assert target.tokenizer is not None
    target.tokenizer.add_tokens(["another"])
    (other,) = parse_alternatives("t", [folder])
    with pytest.raises(OptionError, match="has other token ids than the target"):
        load_alternative(other, target, max_batch=1, loading={})


def test_weights_that_layers_share_count_once() -> None:
    model = tiny_model(tie_word_embeddings=True, dtype=torch.float32)
    names = {id(one): one.numel() for one in model.parameters()}
    buffers = sum(one.numel() * one.element_size() for one in model.buffers())
    assert weight_bytes(model) == 4 * sum(names.values()) + buffers
