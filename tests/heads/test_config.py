"""A configuration of a head can be had only if a head can have it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.errors import OptionError
from outrider.heads.config import DraftConfig, EagleConfig, MedusaConfig

EAGLE: dict[str, Any] = {
    "version": 3,
    "hidden_size": 8,
    "target_hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 2,
    "vocab_size": 16,
    "draft_vocab_size": 8,
    "max_position_embeddings": 64,
    "feature_layers": [2, 3, 5],
    "owns_embeddings": False,
    "owns_head": True,
}
EAGLE_1 = EAGLE | {
    "version": 1,
    "draft_vocab_size": 16,
    "feature_layers": [-1],
    "owns_head": False,
    "fc_bias": True,
}
MEDUSA: dict[str, Any] = {"num_heads": 5, "num_layers": 1, "hidden_size": 8, "vocab_size": 16}

DRAFT: dict[str, Any] = {
    "architecture": {"model_type": "llama", "rope_parameters": {"rope_theta": 1e4}},
    "num_layers": 3,
    "hidden_size": 8,
    "vocab_size": 16,
    "draft_vocab_size": 8,
}


@pytest.mark.parametrize("values", [EAGLE, EAGLE_1, EAGLE | {"feature_layers": None}])
def test_an_eagle_configuration_survives_json(values: dict[str, Any]) -> None:
    config = EagleConfig.from_dict(values)
    assert EagleConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.to_dict().items() >= values.items()


def test_a_medusa_configuration_survives_json() -> None:
    config = MedusaConfig.from_dict(MEDUSA | {"base_model": "org/target"})
    assert MedusaConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("name", sorted(EAGLE))
def test_what_has_no_default_must_be_given(name: str) -> None:
    values = {other: value for other, value in EAGLE.items() if other != name}
    with pytest.raises(OptionError, match=f"{name} is missing"):
        EagleConfig.from_dict(values)


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(OptionError, match="norm_all is unknown; known are version, "):
        EagleConfig.from_dict(EAGLE | {"norm_all": False})
    with pytest.raises(OptionError, match="heads is unknown; known are num_heads, "):
        MedusaConfig.from_dict(MEDUSA | {"heads": 2})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": 2}, "version is 2; it must be 1 or 3"),
        ({"hidden_size": "8"}, "hidden_size is '8'; it must be a whole number"),
        ({"hidden_size": 0}, "hidden_size is 0; it must be at least 1"),
        ({"num_layers": True}, "num_layers is True; it must be a whole number"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps is 'tiny'; it must be a number"),
        ({"fc_norm": 1}, "fc_norm is 1; it must be true or false"),
        ({"rope_parameters": None}, "rope_parameters is None"),
        ({"feature_layers": [1.5]}, "it must be a list of layer numbers"),
        ({"num_key_value_heads": 3}, "3 key-value heads do not divide its 4"),
        ({"draft_vocab_size": 17}, "drafts 17 token ids of 16"),
        ({"target_hidden_size": 6}, "hidden size 8 is not the target's, 6"),
        ({"feature_layers": []}, "reads no feature layers"),
        ({"feature_layers": [-1, 2]}, r"feature_layers is \(-1, 2\)"),
        ({"fc_bias": True}, "fc_bias is true"),
        ({"norm_before_fc": True, "fc_norm": True}, "both true"),
        ({"owns_head": False}, "the target's does not fit"),
    ],
)
def test_what_no_eagle_3_head_can_be_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        EagleConfig.from_dict(EAGLE | change)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"owns_head": True}, "language-model head of its own"),
        ({"draft_vocab_size": 8}, "some of the token ids"),
        ({"feature_layers": [2, 3, 5]}, "feature_layers is"),
        ({"feature_layers": None}, "feature_layers is None"),
        ({"norm_output": True}, "norm_output is true"),
        ({"target_hidden_size": 6, "owns_embeddings": True}, "hidden size is not the target's"),
    ],
)
def test_what_no_eagle_1_head_can_be_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        EagleConfig.from_dict(EAGLE_1 | change)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_heads": 0}, "num_heads is 0"),
        ({"owns_output": "no"}, "owns_output is 'no'"),
        ({"base_model": 3}, "base_model is 3; it must be text or nothing"),
    ],
)
def test_what_no_medusa_heads_can_be_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        MedusaConfig.from_dict(MEDUSA | change)


def test_the_default_layers_are_those_of_the_paper() -> None:
    unnamed = EagleConfig.from_dict(EAGLE | {"feature_layers": None})
    assert unnamed.num_features == 3
    assert unnamed.resolved(32).feature_layers == (2, 16, 29)
    named = EagleConfig.from_dict(EAGLE | {"feature_layers": [1, 2]})
    assert named.num_features == 2
    assert named.resolved(32) == named


def test_a_configuration_does_not_change_with_the_table_it_was_made_from() -> None:
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = EagleConfig.from_dict(EAGLE | {"rope_parameters": rope})
    rope["rope_theta"] = 1.0
    assert config.rope_parameters["rope_theta"] == 10000.0


def test_a_draft_models_configuration_survives_json() -> None:
    config = DraftConfig.from_dict(DRAFT | {"architecture": {"layer_types": ("a", "b")}})
    assert DraftConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.is_reduced and not DraftConfig.from_dict(DRAFT | {"vocab_size": 8}).is_reduced


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_layers": 0}, "num_layers is 0; it must be at least 1"),
        ({"hidden_size": "8"}, "hidden_size is '8'; it must be a whole number"),
        ({"draft_vocab_size": 17}, "a draft model cannot draft 17 token ids of 16"),
        ({"architecture": []}, r"architecture is \[\]; it must be a table of names and values"),
        ({"heads": 2}, "heads is unknown; known are architecture, num_layers"),
    ],
)
def test_a_draft_model_that_cannot_be_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        DraftConfig.from_dict(DRAFT | change)
