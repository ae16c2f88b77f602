"""Folders as the original EAGLE code, vLLM and SGLang have them, written here by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from random_heads import HIDDEN, ROPES, VOCAB, eagle_config, random_head, write_folder
from safetensors.torch import load_file
from torch import Tensor

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.read import read_checkpoint
from outrider.checkpoints.write import write_checkpoint
from outrider.errors import LoadError
from outrider.heads.config import EagleConfig
from outrider.targets.base import NORMED

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": 12,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": None,
    "torch_dtype": "float16",
    "use_cache": True,
    "tie_word_embeddings": False,
    "vocab_size": VOCAB,
}


def layer(prefix: str, inputs: int, *norms: str) -> dict[str, Tensor]:
    """Return the tensors of a decoder layer of 4 heads, 2 of keys, 2 wide."""
    shapes = {
        "self_attn.q_proj": (8, inputs),
        "self_attn.k_proj": (4, inputs),
        "self_attn.v_proj": (4, inputs),
        "self_attn.o_proj": (8, 8),
        "mlp.gate_proj": (12, 8),
        "mlp.up_proj": (12, 8),
        "mlp.down_proj": (8, 12),
    }
    matrices = {f"{prefix}.{name}.weight": torch.randn(shape) for name, shape in shapes.items()}
    return matrices | {f"{prefix}.{norm}.weight": torch.randn(8) for norm in norms}


def eagle_1() -> dict[str, Tensor]:
    return {
        "embed_tokens.weight": torch.randn(VOCAB, 8),
        "fc.weight": torch.randn(8, 16),
        "fc.bias": torch.randn(8),
    } | layer("layers.0", 8, "post_attention_layernorm")


def eagle_3(prefix: str = "midlayer") -> dict[str, Tensor]:
    """Draft ids 0, 1, 2, 3 stand for target ids 0, 1, 5, 8."""
    t2d = torch.zeros(VOCAB, dtype=torch.bool)
    t2d[[0, 1, 5, 8]] = True
    norms = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
    return {
        "d2t": torch.tensor([0, 0, 3, 5]),
        "t2d": t2d,
        "fc.weight": torch.randn(8, 24),
        "lm_head.weight": torch.randn(4, 8),
        "norm.weight": torch.randn(8),
    } | layer(prefix, 16, *norms)


def read_eagle_3(
    folder: Path,
    changes: dict[str, Any] | None = None,
    tensors: dict[str, Tensor] | None = None,
) -> EagleConfig:
    config = LLAMA | {"draft_vocab_size": 4} | (changes or {})
    found = tensors if tensors is not None else eagle_3()
    read = read_checkpoint(write_folder(folder, config, found, "model.safetensors")).config
    assert isinstance(read, EagleConfig)
    return read


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_an_eagle_1_folder_is_read(name: str, tmp_path: Path) -> None:
    tensors = eagle_1()
    read = read_checkpoint(write_folder(tmp_path, LLAMA, tensors, name))
    config = read.config
    assert isinstance(config, EagleConfig)
    assert (config.version, config.feature_layers, config.fc_bias) == (1, (NORMED,), True)
    assert (config.owns_embeddings, config.owns_head, config.head_dim) == (True, False, 2)
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 500000.0}
    assert config.rms_norm_eps == 1e-5
    assert all(torch.equal(read.tensors[one], tensors[one]) for one in tensors)
    assert (read.title, read.format, read.target) == ("EAGLE-1", "eagle", None)


def test_the_bias_of_fc_is_there_unless_the_configuration_says_no(tmp_path: Path) -> None:
    without = {name: one for name, one in eagle_1().items() if name != "fc.bias"}
    read = write_folder(tmp_path / "no", LLAMA | {"bias": False}, without, "model.safetensors")
    assert not getattr(read_checkpoint(read).config, "fc_bias")  # noqa: B009
    folder = write_folder(tmp_path / "absent", LLAMA, without, "model.safetensors")
    with pytest.raises(LoadError, match=r"lack the tensor fc\.bias"):
        read_checkpoint(folder)


def test_what_eagle_1_cannot_have_is_not_passed_over(tmp_path: Path) -> None:
    config = LLAMA | {"draft_vocab_size": 4}
    with pytest.raises(LoadError, match="EAGLE-1 head cannot be: it drafts some of the token ids"):
        read_checkpoint(write_folder(tmp_path, config, eagle_1(), "model.safetensors"))


@pytest.mark.parametrize("prefix", ["midlayer", "layers.0"])
def test_the_layer_of_eagle_3_goes_by_either_name(prefix: str, tmp_path: Path) -> None:
    tensors = eagle_3(prefix)
    config = LLAMA | {"draft_vocab_size": 4}
    read = read_checkpoint(write_folder(tmp_path, config, tensors, "pytorch_model.bin"))
    found = read.tensors["layers.0.hidden_norm.weight"]
    assert torch.equal(found, tensors[f"{prefix}.hidden_norm.weight"])
    assert isinstance(read.config, EagleConfig)
    assert (read.config.version, read.config.draft_vocab_size) == (3, 4)
    assert read.config.feature_layers is None
    assert read.config.owns_head and not read.config.owns_embeddings


def test_layer_ids_are_read_in_the_convention_of_the_key_they_have(tmp_path: Path) -> None:
    """TRAIN-2"""
    ids = "eagle_aux_hidden_state_layer_ids"
    entering = read_eagle_3(tmp_path / "a", {ids: [2, 10, 18]})
    leaving = read_eagle_3(tmp_path / "b", {"eagle_config": {ids: [1, 9, 17]}})
    assert entering.feature_layers == leaving.feature_layers == (2, 10, 18)
    with pytest.raises(LoadError, match="not a list of layer ids"):
        read_eagle_3(tmp_path / "c", {ids: "2,10,18"})


def test_norm_flags_are_kept_and_other_switches_refused(tmp_path: Path) -> None:
    assert read_eagle_3(tmp_path / "a", {"norm_before_residual": True}).norm_before_residual
    with pytest.raises(LoadError, match="sets norm_everything, which is unknown"):
        read_eagle_3(tmp_path / "b", {"norm_everything": True})
    with pytest.raises(LoadError, match="parallel_draft_step 4, which is not supported"):
        read_eagle_3(tmp_path / "c", {"eagle_config": {"parallel_draft_step": 4}})
    with pytest.raises(LoadError, match=r"lack the tensor input_norm\.weight"):
        read_eagle_3(tmp_path / "d", {"norm_before_fc": True})


def test_another_hidden_size_needs_embeddings_of_its_own(tmp_path: Path) -> None:
    changes = {"target_hidden_size": 6}
    tensors = eagle_3() | {"fc.weight": torch.randn(8, 18)}
    with pytest.raises(LoadError, match="no embeddings of its own"):
        read_eagle_3(tmp_path / "a", changes, tensors)
    tensors["embed_tokens.weight"] = torch.randn(VOCAB, 8)
    assert read_eagle_3(tmp_path / "b", changes, tensors).target_hidden_size == 6


def test_maps_of_a_full_vocabulary_may_be_left_out_or_map_each_id_to_itself(tmp_path: Path) -> None:
    full = {name: one for name, one in eagle_3().items() if name not in ("d2t", "t2d")}
    full["lm_head.weight"] = torch.randn(VOCAB, 8)
    changes = {"draft_vocab_size": VOCAB}
    assert not read_eagle_3(tmp_path / "a", changes, full).is_reduced
    identity = {
        "d2t": torch.zeros(VOCAB, dtype=torch.long),
        "t2d": torch.ones(VOCAB, dtype=torch.bool),
    }
    assert not read_eagle_3(tmp_path / "b", changes, full | identity).is_reduced
    swapped = identity | {"d2t": torch.tensor([1, -1, *[0] * (VOCAB - 2)])}
    with pytest.raises(LoadError, match="tensor d2t is no part"):
        read_eagle_3(tmp_path / "c", changes, full | swapped)


def test_old_names_of_the_rotation_mean_the_same(tmp_path: Path) -> None:
    old = {"rope_scaling": {"type": "linear", "factor": 2.0}}
    new = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500000.0}}
    first, second = read_eagle_3(tmp_path / "a", old), read_eagle_3(tmp_path / "b", new)
    assert first.rope_parameters == second.rope_parameters
    partial = read_eagle_3(tmp_path / "c", {"partial_rotary_factor": 0.5})
    assert partial.rope_parameters["partial_rotary_factor"] == 0.5


def test_saved_frequencies_are_no_weights(tmp_path: Path) -> None:
    tensors = eagle_3() | {"midlayer.self_attn.rotary_emb.inv_freq": torch.ones(1)}
    assert read_eagle_3(tmp_path, tensors=tensors).version == 3


def test_a_whole_model_is_told_from_a_head(tmp_path: Path) -> None:
    tensors = {f"model.{name}": one for name, one in eagle_1().items()}
    folder = write_folder(tmp_path, LLAMA, tensors, "model.safetensors")
    with pytest.raises(LoadError, match=r"no trained head.*model:"):
        read_checkpoint(folder)


def written(folder: Path, head: Checkpoint) -> tuple[dict[str, Any], dict[str, Tensor]]:
    assert write_checkpoint(head, "eagle", folder) == ("config.json", "model.safetensors")
    return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")


def test_what_is_written_has_the_original_names(tmp_path: Path) -> None:
    first = random_head(eagle_config(1, owns_embeddings=True), torch.float16)
    config, tensors = written(tmp_path / "1", first)
    assert tensors.keys() == eagle_1().keys()
    assert config["bias"] is True and config["torch_dtype"] == "float16"
    assert "draft_vocab_size" not in config
    third = random_head(eagle_config(draft_vocab_size=4))
    config, tensors = written(tmp_path / "3", third)
    assert tensors.keys() == eagle_3().keys()
    assert config["draft_vocab_size"] == 4 and "target_hidden_size" not in config
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 3, 5]
    for key in ("model_type", "hidden_size", "num_hidden_layers", "vocab_size"):
        assert config[key] == LLAMA[key]


def test_the_rotation_is_written_in_the_words_the_original_code_reads(tmp_path: Path) -> None:
    expected: list[Any] = [None, None, {"type": "linear", "factor": 2.0}]
    for place, (rope, scaling) in enumerate(zip(ROPES, expected, strict=False)):
        head = random_head(eagle_config(1, rope_parameters=rope))
        config, _ = written(tmp_path / str(place), head)
        assert config["rope_theta"] == rope["rope_theta"]
        assert config["rope_scaling"] == scaling
