"""An int8 model read weight by weight is the one quantised whole, and never holds it whole."""

from __future__ import annotations

import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedModel, conversion_mapping
from transformers.core_model_loading import WeightConverter

from outrider.errors import LoadError
from outrider.targets import weights
from outrider.targets.loading import load_model
from outrider.targets.quantization import is_int8, quantize_int8
from outrider.targets.quiet import quiet_transformers
from outrider.targets.streaming import StoredTensors
from support.files import save_tiny_model

MODELS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True, "attention_bias": True}),
    ("qwen2", {}),
    ("gemma2", {"head_dim": 8, "query_pre_attn_scalar": 8}),
    ("gpt2", {}),
    ("gpt_neox", {}),
    ("phi", {}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "tiny")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the weights that were read by themselves."""
    names: list[str] = []
    original = StoredTensors.read

    def noting(self: StoredTensors, name: str) -> Tensor:
        names.append(name)
        return original(self, name)

    monkeypatch.setattr(StoredTensors, "read", noting)
    return names


def _int8(folder: Path, dtype: str = "auto") -> PreTrainedModel:
    return load_model(f"{folder}@int8", device="cpu", dtype=dtype).model


def _quantised_whole(folder: Path, dtype: str = "auto") -> PreTrainedModel:
    model = load_model(str(folder), device="cpu", dtype=dtype).model
    quantize_int8(model)
    return model


def _everything(model: PreTrainedModel) -> dict[str, Tensor]:
    named = dict(model.named_parameters(remove_duplicate=False))
    return named | dict(model.named_buffers(remove_duplicate=False))


def _assert_same(found: PreTrainedModel, expected: PreTrainedModel) -> None:
    tensors, wanted = _everything(found), _everything(expected)
    assert tensors.keys() == wanted.keys()
    for name, tensor in tensors.items():
        other = wanted[name]
        assert (tensor.dtype, tensor.device) == (other.dtype, other.device), name
        assert torch.equal(tensor, other), name
    assert found.config.to_dict() == expected.config.to_dict()
    assert found.name_or_path == expected.name_or_path
    assert _settings(found) == _settings(expected)
    assert not any(module.training for module in found.modules())


def _settings(model: PreTrainedModel) -> dict[str, Any]:
    """Return the settings of generation that are set: off and absent are the same."""
    assert model.generation_config is not None
    settings: dict[str, Any] = model.generation_config.to_dict()
    return {name: value for name, value in settings.items() if value}


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float16"])
@pytest.mark.parametrize(("architecture", "options"), MODELS)
def test_a_streamed_model_is_the_one_quantised_whole(
    architecture: str, options: dict[str, Any], dtype: str, tmp_path: Path, read: list[str]
) -> None:
    folder = save_tiny_model(tmp_path, architecture=architecture, **options)
    found = _int8(folder, dtype)
    assert len(read) >= 8
    _assert_same(found, _quantised_whole(folder, dtype))


def test_a_bfloat16_checkpoint_keeps_its_dtype(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({k: v.bfloat16() for k, v in load_file(path).items()}, path, {"format": "pt"})
    _edit_config(folder, dtype="bfloat16")
    found = _int8(folder)
    assert found.dtype == torch.bfloat16
    _assert_same(found, _quantised_whole(folder))
    _assert_same(_int8(folder, "float32"), _quantised_whole(folder, "float32"))


def test_settings_of_generation_come_along(folder: Path) -> None:
    path = folder / "generation_config.json"
    path.write_text(json.dumps({"temperature": 0.6, "do_sample": True, "eos_token_id": [3, 5]}))
    settings = _settings(_int8(folder))
    assert (settings["temperature"], settings["eos_token_id"]) == (0.6, [3, 5])
    path.unlink()
    _assert_same(_int8(folder), _quantised_whole(folder))


def test_tensors_are_found_in_several_files(folder: Path, read: list[str]) -> None:
    with quiet_transformers():
        load_model(str(folder)).model.save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink()
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    _assert_same(_int8(folder), _quantised_whole(folder))
    assert len(read) == 15


def test_one_floating_weight_is_in_memory_at_a_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[int] = []
    given: list[weakref.ref[Tensor]] = []
    original = StoredTensors.read

    def counting(self: StoredTensors, name: str) -> Tensor:
        alive.append(sum(reference() is not None for reference in given))
        tensor = original(self, name)
        given.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(StoredTensors, "read", counting)
    model = _int8(folder)
    assert alive == [0] * 15
    assert all(reference() is None for reference in given)
    kept = {name for name, p in model.named_parameters() if p.dim() > 1}
    assert kept == {"model.embed_tokens.weight"}


def test_what_stands_in_for_a_weight_takes_no_room(folder: Path) -> None:
    stored = StoredTensors.find(str(folder), {})
    assert stored is not None
    tensors = stored.read_but({"lm_head.weight"}, torch.bfloat16)
    head = tensors["lm_head.weight"]
    assert (head.shape, head.dtype) == ((64, 32), torch.bfloat16)
    assert head.untyped_storage().nbytes() == 2
    assert tensors["model.embed_tokens.weight"].dtype == torch.float32


def test_tensors_of_a_downloaded_model_are_found(folder: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--owner--name"
    shutil.copytree(folder, repository / "snapshots" / "0123")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123")
    options = {"local_files_only": True, "cache_dir": str(tmp_path / "hub")}
    stored = StoredTensors.find("owner/name", options)
    assert stored is not None
    assert stored.files.keys() == load_file(folder / "model.safetensors").keys()


# -- where Transformers has to read ------------------------------------------------------------


def test_a_checkpoint_of_another_format_is_read_whole(folder: Path, read: list[str]) -> None:
    path = folder / "model.safetensors"
    expected = _quantised_whole(folder)
    torch.save(load_file(path), folder / "pytorch_model.bin")
    path.unlink()
    _assert_same(_int8(folder), expected)
    assert read == []


def test_what_is_converted_while_it_is_loaded_is_read_whole(
    folder: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make: Any = WeightConverter
    converter = make("q_proj.weight", "q_proj.weight", operations=[object()])
    monkeypatch.setattr(
        conversion_mapping, "get_model_conversion_mapping", lambda model: [converter]
    )
    assert is_int8(_int8(folder))
    assert read == []


def test_weights_of_a_dtype_of_their_own_are_read_whole(
    folder: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LlamaForCausalLM, "_keep_in_fp32_modules_strict", {"q_proj"})
    _assert_same(_int8(folder, "bfloat16"), _quantised_whole(folder, "bfloat16"))
    assert read == []


def test_an_adapter_beside_the_weights_is_left_to_transformers(folder: Path) -> None:
    assert StoredTensors.find(str(folder), {}) is not None
    (folder / "adapter_config.json").write_text("{}")
    assert StoredTensors.find(str(folder), {}) is None


# -- what is wrong is said as ever -------------------------------------------------------------


def test_a_missing_tensor_is_named(folder: Path) -> None:
    _edit_config(folder, num_hidden_layers=3)
    with pytest.raises(LoadError, match=r"@int8: its weights lack the tensor model\.layers\.2\."):
        _int8(folder)


def test_a_linear_weight_of_another_shape_is_named(folder: Path) -> None:
    _edit_config(folder, intermediate_size=64)
    with pytest.raises(LoadError, match=r"down_proj\.weight has shape \[32, 48\].* \[32, 64\]"):
        _int8(folder)


def test_unused_tensors_are_reported(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    _edit_config(folder, num_hidden_layers=1)
    _int8(folder)
    assert "unused tensor model.layers.1.input_layernorm.weight and 8 more" in caplog.text


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_truncated_weights_are_one_line(keep: int, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(LoadError, match=r"cannot load the weights of .*@int8 \(") as caught:
        _int8(folder)
    assert "\n" not in str(caught.value)


def test_room_is_asked_for_what_streaming_takes(
    folder: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Embedding and norms, int8 weights and scales, and the largest weight in float32."""
    linear = 2 * (4 * 32 * 32 + 3 * 32 * 48) + 64 * 32
    scales = 2 * (4 * 32 + 2 * 48 + 32) + 64
    needed = 4 * (64 * 32 + 5 * 32) + linear + 4 * scales + 4 * 64 * 32
    monkeypatch.setattr(weights, "available_memory", lambda device: needed)
    assert is_int8(_int8(folder))
    monkeypatch.setattr(weights, "available_memory", lambda device: needed - 1)
    read.clear()
    with pytest.raises(LoadError, match=r"in int8, and .* are free on cpu"):
        _int8(folder)
    assert read == []


def test_room_is_asked_for_all_weights_where_they_are_read_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "model.safetensors"
    torch.save(load_file(path), folder / "pytorch_model.bin")
    path.unlink()
    monkeypatch.setattr(weights, "available_memory", lambda device: 64 * 2**10)
    with pytest.raises(LoadError, match=r"take 84\.6 KiB in float32, and 64\.0 KiB are free"):
        _int8(folder)


def _edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
