"""A spec leads to one model, or to one line that says what is wrong with it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaModel
from transformers.utils import logging as transformers_logging

from outrider.errors import LoadError, OptionError, UnsupportedModelError
from outrider.targets.inspection import inspect_pair
from outrider.targets.loading import load_config, load_model, load_tokenizer
from support.files import add_own_class, save_tiny_model, word_tokenizer, write_tiny_gguf
from support.tiny import tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "tiny")


def _edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_folder_gives_its_model_and_tokenizer(folder: Path) -> None:
    loaded = load_model(str(folder), device="cpu")
    assert loaded.name == str(folder)
    assert loaded.tokenizer is not None
    assert loaded.tokenizer("w3 w5").input_ids == [3, 5]
    assert loaded.model.device == torch.device("cpu")
    assert not loaded.model.training
    stored = load_file(folder / "model.safetensors")
    embedding = loaded.model.get_parameter("model.embed_tokens.weight")
    assert torch.equal(embedding, stored["model.embed_tokens.weight"])
    assert load_config(str(folder)).vocab_size == 64
    assert load_tokenizer(str(folder)).get_vocab() == loaded.tokenizer.get_vocab()


def test_a_gguf_file_is_expanded_to_float32_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    loaded = load_model(str(path), device="cpu")
    assert loaded.model.dtype == torch.float32
    assert loaded.tokenizer is not None and loaded.tokenizer.eos_token_id == 0
    assert load_model(str(path), device="cpu", dtype="bfloat16").model.dtype == torch.bfloat16
    assert load_config(str(path)).vocab_size == len(load_tokenizer(str(path)))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("auto", torch.bfloat16),
        ("float32", torch.float32),
        ("float16", torch.float16),
        (torch.float64, torch.float64),
    ],
)
def test_dtype_auto_is_the_checkpoints_own(dtype: Any, expected: torch.dtype, folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({k: v.bfloat16() for k, v in load_file(path).items()}, path, {"format": "pt"})
    _edit_config(folder, dtype="bfloat16")
    assert load_model(str(folder), device="cpu", dtype=dtype).model.dtype == expected


@pytest.mark.parametrize("dtype", ["float8", "fp32", "int8", torch.int64, 32])
def test_an_unknown_dtype_is_an_option_error(dtype: Any, folder: Path) -> None:
    with pytest.raises(OptionError, match="it must be one of auto, float32, bfloat16, float16"):
        load_model(str(folder), dtype=dtype)


@pytest.mark.parametrize("device", ["tpu-v9", "cuda:99", "meta", "cpu:x"])
def test_an_unknown_device_is_an_option_error(device: str, folder: Path) -> None:
    with pytest.raises(OptionError, match=f"device is '{device}'") as caught:
        load_model(str(folder), device=device)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("nobody/no-such-model", "unknown model 'nobody/no-such-model': no such folder, not among"),
        ("not a model", "unknown model 'not a model': no such folder, and not a hub id"),
        ("./missing", "cannot load ./missing: no such file or folder"),
        ("/missing/folder", "cannot load /missing/folder: no such file or folder"),
        ("missing.gguf", "cannot load missing.gguf: no such file or folder"),
    ],
)
def test_an_unknown_spec_is_one_line(spec: str, problem: str) -> None:
    for load in (load_model, load_tokenizer, load_config):
        with pytest.raises(LoadError) as caught:
            load(spec)
        assert str(caught.value).startswith(problem)
        assert "\n" not in str(caught.value)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"the folder holds no config\.json"):
        load_model(str(tmp_path))


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.txt"
    file.touch()
    with pytest.raises(LoadError, match=r"neither a folder nor a \.gguf"):
        load_model(str(file))


@pytest.mark.parametrize("content", ["{", "{}", '{"model_type": "no-such-type"}', "[]"])
def test_an_unusable_config_is_one_line(content: str, folder: Path) -> None:
    (folder / "config.json").write_text(content)
    with pytest.raises(LoadError, match=r"no usable config\.json") as caught:
        load_model(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_truncated_weights_are_refused(keep: int, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(LoadError, match="cannot load the weights"):
        load_model(str(folder))


def test_missing_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(LoadError, match="cannot load the weights"):
        load_model(str(folder))


def test_a_missing_tensor_is_never_filled_with_random_numbers(folder: Path) -> None:
    _edit_config(folder, num_hidden_layers=3)
    with pytest.raises(LoadError, match=r"lack the tensor model\.layers\.2\.input_layernorm"):
        load_model(str(folder))


def test_a_tensor_of_another_shape_is_named(folder: Path) -> None:
    _edit_config(folder, vocab_size=72)
    with pytest.raises(
        LoadError, match=r"tensor lm_head\.weight has shape \[64, 32\].* asks for \[72, 32\]"
    ):
        load_model(str(folder))


def test_tensors_that_are_not_used_are_reported(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _edit_config(folder, num_hidden_layers=1)
    load_model(str(folder), device="cpu")
    assert "unused tensor model.layers.1.input_layernorm.weight and 8 more" in caplog.text


def test_a_missing_tokenizer_is_an_error_unless_one_is_given(tmp_path: Path) -> None:
    bare = str(save_tiny_model(tmp_path / "bare", tokenizer=False))
    for load in (load_model, load_tokenizer):
        with pytest.raises(LoadError, match="no usable tokenizer in"):
            load(bare)
    words = word_tokenizer()
    assert load_model(bare, tokenizer=words, device="cpu").tokenizer is words


def test_models_outrider_cannot_drive_are_refused_before_their_weights_are_read(
    folder: Path,
) -> None:
    (folder / "model.safetensors").unlink()
    _edit_config(folder, model_type="speech_to_text", is_encoder_decoder=True)
    with pytest.raises(UnsupportedModelError, match="speech_to_text"):
        load_model(str(folder))
    _edit_config(folder, model_type="vit", is_encoder_decoder=False)
    with pytest.raises(UnsupportedModelError, match="'vit' is not a causal language model"):
        load_model(str(folder))


def test_code_that_comes_with_a_model_runs_only_if_trusted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "own"))
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    add_own_class(folder)
    with pytest.raises(LoadError, match="trust_remote_code"):
        load_model(str(folder), device="cpu")
    loaded = load_model(str(folder), device="cpu", trust_remote_code=True)
    assert type(loaded.model).__name__ == "OwnForCausalLM"
    report = inspect_pair(str(folder), trust_remote_code=True).target
    assert (report.model_class, report.unsupported) == ("OwnForCausalLM", ())


def test_a_loaded_model_is_used_as_it_stands() -> None:
    """VOCAB-4."""
    model, words = tiny_model(), word_tokenizer()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    settings = (model.config.to_dict(), model.generation_config.to_dict())
    loaded = load_model(model, tokenizer=words)
    assert loaded.model is model
    assert loaded.tokenizer is words
    assert load_model(model, dtype=torch.float64, device="cpu").tokenizer is None
    assert (model.config.to_dict(), model.generation_config.to_dict()) == settings
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())


def test_options_that_would_change_a_loaded_model_are_refused() -> None:
    model = tiny_model()
    with pytest.raises(OptionError, match=r"dtype is torch\.float32, but .* in torch\.float64"):
        load_model(model, dtype="float32")
    model.train()
    with pytest.raises(OptionError, match=r"call model\.eval\(\) first"):
        load_model(model)
    assert model.training
    with pytest.raises(OptionError, match="it must be a spec or a Transformers model"):
        load_model(7)  # type: ignore[arg-type]


def test_a_loaded_model_without_a_head_is_refused() -> None:
    config: Any = tiny_model().config
    bare = LlamaModel(config)
    bare.training = False
    with pytest.raises(UnsupportedModelError, match="no language-model head"):
        load_model(bare)


def test_loading_is_silent_and_restores_the_users_settings(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    verbosity = transformers_logging.get_verbosity()
    try:
        transformers_logging.set_verbosity(logging.INFO)
        load_model(str(folder), device="cpu")
        assert transformers_logging.get_verbosity() == logging.INFO
        assert transformers_logging.is_progress_bar_enabled()
        assert transformers_logging.set_tqdm_hook(None) is None
    finally:
        transformers_logging.set_verbosity(verbosity)
    assert capfd.readouterr() == ("", "")
