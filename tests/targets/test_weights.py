"""Weights in few bits: named, checked before anything is read, refused in one line."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from outrider.errors import LoadError, OptionError, UnsupportedModelError
from outrider.targets import weights
from outrider.targets.int8 import Int8Linear
from outrider.targets.loading import load_model
from outrider.targets.quantization import is_int8, quantize_int8
from support.files import save_tiny_model, write_tiny_gguf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "tiny")


def _quantised_with(folder: Path, **quantization: Any) -> str:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"quantization_config": quantization}
    path.write_text(json.dumps(config))
    return str(folder)


def test_a_suffix_gives_an_int8_model_of_that_name(folder: Path) -> None:
    plain = load_model(str(folder), device="cpu").model
    loaded = load_model(f"{folder}@int8", device="cpu")
    assert loaded.name == f"{folder}@int8"
    assert loaded.tokenizer is not None
    assert loaded.model.dtype == torch.float32 and not loaded.model.training
    quantize_int8(plain)
    expected = dict(plain.named_buffers())
    assert is_int8(loaded.model)
    assert all(torch.equal(expected[name], b) for name, b in loaded.model.named_buffers())


def test_the_dtype_of_an_int8_model_is_that_of_the_rest(folder: Path) -> None:
    model = load_model(f"{folder}@int8", device="cpu", dtype="bfloat16").model
    assert model.dtype == torch.bfloat16
    head = model.get_submodule("lm_head")
    assert isinstance(head, Int8Linear)
    assert (head.weight.dtype, head.scale.dtype) == (torch.int8, torch.bfloat16)


def test_a_gguf_file_can_be_quantised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    assert is_int8(load_model(f"{path}@int8", device="cpu").model)


def test_experts_are_refused_before_weights_are_read(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    }
    folder = save_tiny_model(tmp_path, architecture="qwen3_moe", **options)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match="@int8 cannot be quantised to int8: model"):
        load_model(f"{folder}@int8", device="cpu")


@pytest.mark.parametrize(
    ("suffix", "size"), [("", r"84\.6 KiB in float32"), ("@int8", r"37\.9 KiB in int8")]
)
def test_weights_that_do_not_fit_are_refused_before_they_are_read(
    suffix: str, size: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(weights, "available_memory", lambda device: 1024)
    with pytest.raises(LoadError, match=f"take {size}, and 1\\.0 KiB are free on cpu"):
        load_model(f"{folder}{suffix}", device="cpu")


@pytest.mark.parametrize(
    ("quantization", "needs"),
    [
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes"),
        ({"quant_method": "gptq", "bits": 4}, "optimum"),
        ({"quant_method": "awq", "bits": 4}, "gptqmodel"),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, "torchao"),
        ({"quant_method": "fbgemm_fp8"}, "GPU"),
    ],
)
def test_a_quantised_checkpoint_names_what_it_needs(
    quantization: dict[str, Any], needs: str, folder: Path
) -> None:
    if torch.cuda.is_available() if needs == "GPU" else find_spec(needs) is not None:
        pytest.skip(f"{needs} is there")
    method = quantization["quant_method"]
    with pytest.raises(LoadError, match=f"quantised with {method} .*{needs}") as caught:
        load_model(_quantised_with(folder, **quantization), device="cpu")
    assert "\n" not in str(caught.value)


def test_an_unknown_method_is_refused(folder: Path) -> None:
    """Transformers would load the tensors that fit, without a word."""
    spec = _quantised_with(folder, quant_method="no-such-method")
    with pytest.raises(LoadError, match="quantised with no-such-method, which Transformers does"):
        load_model(spec, device="cpu")


def test_weights_that_are_expanded_are_reported(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = _quantised_with(folder, quant_method="fp8", weight_block_size=[128, 128])
    load_model(spec, device="cpu")
    assert "its fp8 weights are expanded to torch.float32 on this machine" in caplog.text


@pytest.mark.parametrize("suffix", ["@int8", "@bnb8"])
def test_nothing_is_quantised_twice(suffix: str, folder: Path) -> None:
    spec = _quantised_with(folder, quant_method="gptq", bits=4)
    with pytest.raises(OptionError, match=f"{suffix}: it is quantised already, with gptq"):
        load_model(f"{spec}{suffix}", device="cpu")


def test_bnb8_needs_a_gpu(folder: Path) -> None:
    with pytest.raises(OptionError, match=r"@bnb8 needs a CUDA device; @int8 quantises on any"):
        load_model(f"{folder}@bnb8", device="cpu")
