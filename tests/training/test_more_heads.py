"""A draft model with more attention heads: the same model until they learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from outrider.checkpoints.tensors import require_tensors
from outrider.errors import OptionError
from outrider.heads.config import DraftConfig
from outrider.training.copying.more_heads import Heads, with_more_heads
from outrider.training.copying.new_heads import NewHeads, slow_places
from outrider.training.draft import depth_cut, to_be_trained
from support.tiny import random_ids, tiny_model

GROUPED: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
ALONE: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 4}


def config_of(checkpoint: Any) -> DraftConfig:
    assert isinstance(checkpoint.config, DraftConfig)
    return checkpoint.config


@pytest.mark.parametrize("shape", [GROUPED, ALONE], ids=["grouped", "alone"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "mistral", "gemma3_text"])
def test_a_draft_model_says_the_same_with_more_heads(
    architecture: str, shape: dict[str, Any]
) -> None:
    model = tiny_model(architecture, dtype=torch.float32, **shape)
    before = depth_cut(model, [0, 1])
    after = with_more_heads(before, 2, seed=0)
    require_tensors(after.config, after.tensors, "it")
    old, new = Heads.of(config_of(before)), Heads.of(config_of(after))
    assert new.size == old.size
    assert new.queries >= old.queries + 2
    assert new.queries * old.keys == new.keys * old.queries
    ids = torch.tensor([random_ids(12)])
    states = []
    for one in (before, after):
        built: Any = to_be_trained(one, model)
        with torch.inference_mode():
            states.append(built.model(ids).last_hidden_state)
    torch.testing.assert_close(*states, atol=1e-5, rtol=1e-5)


def test_there_are_as_few_new_heads_as_the_architecture_takes() -> None:
    """A Llama's width is a multiple of the number of its heads."""
    found = {}
    for width in (32, 24):
        model = tiny_model(dtype=torch.float32, hidden_size=width, **GROUPED)
        found[width] = Heads.of(config_of(with_more_heads(depth_cut(model, [0]), 2, seed=0)))
    assert found[24] == Heads(6, 3, 8)
    assert found[32] == Heads(8, 4, 8)


def test_a_model_that_takes_no_more_heads_is_refused() -> None:
    model = tiny_model("gpt2", dtype=torch.float32)
    with pytest.raises(OptionError, match="of the kind gpt2 cannot have more attention heads"):
        with_more_heads(depth_cut(model, [0]), 2, seed=0)


def test_only_the_new_heads_of_the_named_layers_learn() -> None:
    model = tiny_model(dtype=torch.float32, hidden_size=24, num_hidden_layers=3, **GROUPED)
    wider = with_more_heads(depth_cut(model, [0, 1, 2]), 2, seed=0)
    draft: Any = to_be_trained(wider, model)
    before = {name: one.detach().clone() for name, one in draft.named_parameters()}
    heads = NewHeads(draft, {1: draft.model.layers[1], 2: draft.model.layers[2]}, Heads(4, 2, 8))
    optimizer = torch.optim.AdamW(heads.parameters, lr=0.01, weight_decay=0.0)
    for _ in range(3):
        draft.zero_grad()
        draft.model(torch.tensor([random_ids(12)])).last_hidden_state.pow(2).sum().backward()
        heads.keep_gradients()
        optimizer.step()
    changed = {
        name: (one.detach() != before[name]).nonzero()
        for name, one in draft.named_parameters()
        if not torch.equal(one, before[name])
    }
    assert {name.split(".")[2] for name in changed} == {"1", "2"}
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    for name, places in changed.items():
        is_output = name.split(".")[-2] == "o_proj"
        first = 32 if name.split(".")[-2] in ("q_proj", "o_proj") else 16
        assert places[:, 1 if is_output else 0].min() == first


def test_places_that_compare_from_afar_are_those_that_hardly_turn() -> None:
    turning = torch.nn.Module()
    turning.inv_freq = torch.tensor([1.0, 0.1, 0.01, 1e-4, 1e-5, 1e-6, 0.0, 0.0])
    assert slow_places(turning, 16) == [3, 11, 4, 12, 5, 13, 6, 14, 7, 15]
    turning.inv_freq = torch.tensor([1.0, 0.5, 0.2, 0.1])
    assert slow_places(turning, 8) == [3, 7]
    assert slow_places(None, 4) == [0, 1, 2, 3]


def test_what_is_put_into_new_heads_is_in_the_model() -> None:
    model = tiny_model(dtype=torch.float32, hidden_size=24, **GROUPED)
    draft: Any = to_be_trained(with_more_heads(depth_cut(model, [0, 1]), 2, seed=0), model)
    heads = NewHeads(draft, {1: draft.model.layers[1]}, Heads(4, 2, 8))
    rows = torch.randn(3, 24)
    heads.put(1, "q_proj", rows, places=[1, 4, 7])
    written = draft.model.layers[1].self_attn.q_proj.weight
    for head in written[32:].split(8):
        assert torch.equal(head[[1, 4, 7]], rows)
        assert head[0].abs().max() < 0.03
    assert heads.weight(1, "o_proj").shape == (24, 16)
