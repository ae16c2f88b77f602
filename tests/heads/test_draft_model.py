"""A draft model is its target's layers between its target's ends, and changes neither."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from outrider.checkpoints.base import Checkpoint
from outrider.errors import OptionError, UnsupportedModelError
from outrider.heads.config import DraftConfig
from outrider.heads.draft import (
    TOKEN_IDS,
    borrowed,
    build_draft,
    output_rows,
    own_shapes,
    own_tensors,
    share,
    transformers_config,
)
from outrider.targets.int8 import Int8Linear, quantize_rows
from support.drafts import draft_of
from support.tiny import VOCAB, random_ids, tiny_model

IDS = torch.tensor([random_ids(11)])
CPU = torch.device("cpu")
ARCHITECTURES = ["llama", "qwen3", "gemma2", "gemma3_text", "phi", "gpt2", "gpt_neox"]


def ends(model: PreTrainedModel) -> tuple[Any, Any]:
    get_output: Any = model.get_output_embeddings
    return model.get_input_embeddings(), get_output()


def built(draft: Checkpoint, dtype: torch.dtype = torch.float64) -> Any:
    assert isinstance(draft.config, DraftConfig)
    return build_draft(draft.config, draft.tensors, dtype=dtype, device=CPU)


def joined(draft: Checkpoint, model: PreTrainedModel) -> Any:
    """Return a draft model as a drafter has it: the output layer is cut to the ids drafted."""
    found = built(draft, model.dtype)
    embeddings, output_layer = ends(model)
    ids = draft.tensors.get(TOKEN_IDS)
    if ids is not None:
        output_layer = output_rows(output_layer, ids, model.dtype)
    share(found, embeddings, output_layer)
    return found


@torch.inference_mode()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(IDS, use_cache=False).logits
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [True, False])
def test_all_layers_between_the_same_ends_are_the_target(architecture: str, tied: bool) -> None:
    model = tiny_model(architecture, tie_word_embeddings=tied)
    assert torch.equal(logits(joined(draft_of(model), model)), logits(model))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_reduced_vocabulary_takes_columns_of_the_logits(architecture: str) -> None:
    model = tiny_model(architecture)
    ids = [1, 4, 9, 40, 63]
    found = logits(joined(draft_of(model, ids=ids), model))
    torch.testing.assert_close(found, logits(model)[..., ids])


def test_a_draft_has_what_is_its_own_and_no_more() -> None:
    model = tiny_model(num_hidden_layers=3, tie_word_embeddings=False)
    draft = draft_of(model, [0, 2])
    everything = set(draft_of(model).tensors)
    assert {f"model.{name}.weight" for name in ("embed_tokens", "norm")} - everything == {
        "model.embed_tokens.weight"
    }
    assert {name.split(".")[2] for name in draft.tensors if "layers" in name} == {"0", "1"}
    assert "lm_head.weight" not in draft.tensors
    assert set(own_tensors(built(draft))) == set(draft.tensors)


def test_the_target_is_neither_copied_nor_changed() -> None:
    model: Any = tiny_model()
    weights = {name: part.clone() for name, part in model.state_dict().items()}
    modules, settings = list(model.modules()), model.config.to_dict()
    flags = [parameter.requires_grad for parameter in model.parameters()]
    whole, part = joined(draft_of(model), model), joined(draft_of(model, [0], [1, 2]), model)
    logits(whole), logits(part)
    for found in (whole, part):
        assert found.get_input_embeddings() is model.get_input_embeddings()
    assert whole.get_output_embeddings() is model.get_output_embeddings()
    assert sum(one.numel() for one in part.get_output_embeddings().parameters()) == 2 * 32
    assert list(model.modules()) == modules
    assert model.config.to_dict() == settings
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(torch.equal(part, weights[name]) for name, part in model.state_dict().items())


def test_weights_take_the_targets_type_and_frequencies_keep_theirs() -> None:
    model = tiny_model(dtype=torch.float32)
    found = built(draft_of(model), torch.bfloat16)
    assert {one.dtype for one in found.parameters()} == {torch.bfloat16}
    frequencies = [one for name, one in found.named_buffers() if name.endswith("inv_freq")]
    assert frequencies and all(one.dtype == torch.float32 for one in frequencies)
    expected = dict(model.named_buffers())
    for name, one in found.named_buffers():
        torch.testing.assert_close(one, expected[name])


def test_quantised_rows_are_rows_of_what_they_stand_for() -> None:
    weight = torch.randn(VOCAB, 32, generator=torch.Generator().manual_seed(0))
    layer = Int8Linear(*quantize_rows(weight), None)
    ids, x = torch.tensor([3, 5, 60]), torch.randn(4, 32)
    found = output_rows(layer, ids, torch.float32)(x)
    torch.testing.assert_close(found, layer(x)[:, ids], atol=1e-5, rtol=1e-4)


class Other(nn.Linear):
    """A linear layer that does something else with its weight."""


@pytest.mark.parametrize(
    "layer", [Other(4, 8), nn.Linear(4, 8, device="meta"), nn.Identity()], ids=str
)
def test_an_output_layer_that_cannot_be_parted_is_refused(layer: nn.Module) -> None:
    with pytest.raises(UnsupportedModelError, match=f"output layer is a {type(layer).__name__}"):
        output_rows(layer, torch.tensor([1, 2]), torch.float32)


def test_a_borrowed_layer_answers_in_its_own_type_and_holds_nothing() -> None:
    layer = nn.Embedding(8, 4, dtype=torch.bfloat16)
    found = borrowed(layer, torch.float32)
    assert found(torch.tensor([3])).dtype == torch.float32
    assert list(found.parameters()) == list(found.modules())[1:] == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_layers": 3}, "num_layers is 3, but the architecture has 2"),
        ({"hidden_size": 16}, "hidden_size is 16, but the architecture has 32"),
        ({"vocab_size": 65}, "vocab_size is 65, but the architecture has 64"),
        ({"architecture": {"model_type": "no-such"}}, "none that Transformers knows"),
        ({"architecture": {}}, "none that Transformers knows"),
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(
    change: dict[str, Any], problem: str
) -> None:
    config = draft_of(tiny_model()).config
    assert isinstance(config, DraftConfig)
    with pytest.raises(OptionError, match=problem):
        transformers_config(replace(config, **change))


def test_an_architecture_that_is_no_language_model_is_refused() -> None:
    config = DraftConfig(
        architecture={"model_type": "vit", "vocab_size": 8},
        num_layers=12,
        hidden_size=768,
        vocab_size=8,
        draft_vocab_size=8,
    )
    with pytest.raises(OptionError, match="'vit', which is no causal language model"):
        own_shapes(config)
