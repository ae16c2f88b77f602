"""Folders as vllm-project/speculators writes them, written here by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from random_heads import HIDDEN, VOCAB, eagle_config, random_head, random_tensors, write_folder
from transformers import AutoConfig, LlamaConfig

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.read import read_checkpoint
from outrider.checkpoints.write import write_checkpoint
from outrider.errors import LoadError
from outrider.heads.config import EagleConfig

SPECULATOR: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "auto_map": {"": "config.Eagle3SpeculatorConfig"},
    "base_model_ep_plan": None,
    "draft_vocab_size": 8,
    "dtype": "float32",
    "eagle_aux_hidden_state_layer_ids": [2, 10, 18],
    "embed_requires_grad": False,
    "has_no_defaults_at_init": False,
    "norm_before_residual": True,
    "speculators_config": {
        "algorithm": "eagle3",
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
        "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "org/target"},
    },
    "speculators_model_type": "eagle3",
    "speculators_version": "0.5.0",
    "target_hidden_size": None,
    "transformer_layer_config": {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "head_dim": 2,
        "intermediate_size": 12,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "vocab_size": VOCAB,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    },
}


def read(folder: Path, config: EagleConfig | None = None, **changes: Any) -> Checkpoint:
    """Read a speculator with changes of its configuration, and the tensors of another one."""
    tensors = random_tensors(config or eagle_config())
    return read_checkpoint(write_folder(folder, SPECULATOR | changes, tensors, "model.safetensors"))


def test_a_speculator_is_read(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.title, found.format, found.target) == ("EAGLE-3", "speculators", "org/target")
    assert found.config == eagle_config(
        feature_layers=(2, 10, 18),
        norm_before_residual=True,
        max_position_embeddings=2048,
        rope_parameters={"rope_theta": 500000.0, "rope_type": "default"},
    )


def test_no_layer_ids_means_those_of_the_targets_depth(tmp_path: Path) -> None:
    sizes = {"hidden_size": HIDDEN, "vocab_size": VOCAB, "num_attention_heads": 1}
    target = AutoConfig.for_model("llama", num_hidden_layers=12, **sizes)
    read(tmp_path, eagle_aux_hidden_state_layer_ids=None)
    assert getattr(read_checkpoint(tmp_path).config, "feature_layers") is None  # noqa: B009
    resolved = read_checkpoint(tmp_path, target).config
    assert isinstance(resolved, EagleConfig)
    assert resolved.feature_layers == (2, 6, 9)


@pytest.mark.parametrize("flag", ["norm_before_fc", "fc_norm", "norm_output"])
def test_each_norm_flag_is_kept(flag: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {flag: True}
    assert getattr(read(tmp_path, eagle_config(**changes), **changes).config, flag) is True


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"norm_after_all": True}, "sets norm_after_all, which is unknown"),
        ({"norm_output": "yes"}, "norm_output is 'yes'"),
        ({"norm_before_fc": True, "fc_norm": True}, "both true"),
        ({"speculators_model_type": "dflash"}, "a dflash speculator is not supported"),
        ({"speculators_model_type": "peagle"}, "a peagle speculator is not supported"),
        ({"speculators_model_type": "mtp"}, "a mtp speculator is not supported"),
        ({"transformer_layer_config": {"model_type": "qwen3"}}, "qwen3 layers are not supported"),
        ({"transformer_layer_config": {"hidden_size": 8}}, "lacks intermediate_size"),
        ({"transformer_layer_config": None}, "lacks transformer_layer_config"),
        ({"draft_vocab_size": 0}, "draft_vocab_size is 0; it must be at least 1"),
        ({"draft_vocab_size": "8"}, "draft_vocab_size is '8'"),
        ({"eagle_aux_hidden_state_layer_ids": [-1, 2, 3]}, "feature_layers is"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(LoadError, match=problem):
        read(tmp_path, **changes)


def test_what_is_written_says_all_that_vllm_asks_for(tmp_path: Path) -> None:
    target = AutoConfig.for_model("llama", architectures=["LlamaForCausalLM"])
    head = random_head(eagle_config(), torch.bfloat16)
    files = write_checkpoint(head, "speculators", tmp_path / "new", target)
    assert files == ("config.json", "model.safetensors")
    written = json.loads((tmp_path / "new" / "config.json").read_text())
    assert written["architectures"] == ["Eagle3Speculator"]
    assert (written["draft_vocab_size"], written["dtype"]) == (8, "bfloat16")
    settings = written["speculators_config"]
    assert settings["verifier"] == {
        "name_or_path": "org/target",
        "architectures": ["LlamaForCausalLM"],
    }
    assert settings["proposal_methods"][0]["speculative_tokens"] > 0
    layer = LlamaConfig(**written["transformer_layer_config"])
    assert (layer.hidden_size, layer.vocab_size, layer.num_hidden_layers) == (HIDDEN, VOCAB, 1)
