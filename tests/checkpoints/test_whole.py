"""A draft model written whole is what Transformers loads, and says what it drafted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from random_heads import eagle_config, random_head
from transformers import AutoModelForCausalLM

from outrider.checkpoints.whole import write_whole
from outrider.errors import LoadError, OptionError
from outrider.targets.loading import LoadedModel, load_model
from support.drafts import draft_of
from support.files import save_tiny_model, word_tokenizer
from support.tiny import random_ids, tiny_model

IDS = torch.tensor([random_ids(9)])


def loaded(**changes: Any) -> LoadedModel:
    model = tiny_model(dtype=torch.float32, **changes)
    return LoadedModel(model, word_tokenizer(), "org/target")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("ids", [None, [1, 2, 40]])
def test_it_says_what_the_layers_between_the_ends_say(
    ids: list[int] | None, tied: bool, tmp_path: Path
) -> None:
    target = loaded(tie_word_embeddings=tied)
    files = write_whole(draft_of(target.model, ids=ids), target, tmp_path / "new")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    modes = {(tmp_path / "new" / name).stat().st_mode for name in files[:1] + files[-1:]}
    assert len(modes | {(tmp_path / "new" / "model.safetensors").stat().st_mode}) == 1
    again: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "new")
    assert again.dtype == torch.float32
    model: Any = target.model
    with torch.inference_mode():
        assert torch.equal(again(IDS).logits, model(IDS).logits)
    assert load_model(str(tmp_path / "new")).model.config.tie_word_embeddings == tied


def test_the_target_is_left_as_it_is(tmp_path: Path) -> None:
    target = loaded()
    draft = draft_of(target.model, [0])
    half = {name: part.bfloat16() for name, part in draft.tensors.items()}
    weights = {name: part.clone() for name, part in target.model.state_dict().items()}
    write_whole(type(draft)(config=draft.config, tensors=half), target, tmp_path / "new")
    assert all(torch.equal(one, weights[name]) for name, one in target.model.state_dict().items())
    written: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "new")
    assert written.dtype == torch.bfloat16


def test_what_makes_no_whole_model_is_refused_and_nothing_written(tmp_path: Path) -> None:
    target, out = loaded(), tmp_path / "new"
    with pytest.raises(OptionError, match="EAGLE-3 heads cannot be written as transformers"):
        write_whole(random_head(eagle_config()), target, out)
    with pytest.raises(LoadError, match="the draft model reads embeddings of size 32"):
        write_whole(draft_of(target.model), loaded(hidden_size=48, head_dim=12), out)
    quantised = load_model(f"{save_tiny_model(tmp_path / 'small')}@int8")
    with pytest.raises(OptionError, match="quantised output layer; name the model that it was"):
        write_whole(draft_of(target.model), quantised, out)
    assert not out.exists()
