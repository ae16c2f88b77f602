"""The tensors of a head are exactly those its configuration asks for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_heads import (
    VOCAB,
    draft_config,
    eagle_config,
    eagle_configs,
    medusa_config,
    random_tensors,
)
from torch import Tensor

from outrider.checkpoints.base import HeadConfig
from outrider.checkpoints.tensors import expected_shapes, require_tensors
from outrider.errors import LoadError

CONFIGS = st.one_of(
    eagle_configs(1),
    eagle_configs(3),
    st.builds(medusa_config, num_layers=st.integers(1, 2), owns_output=st.booleans()),
    st.builds(draft_config, st.sampled_from([1, 5, VOCAB]), num_hidden_layers=st.integers(1, 2)),
)


@settings(max_examples=20, deadline=None)
@given(CONFIGS, st.data())
def test_every_tensor_is_needed_in_its_shape_and_no_other_allowed(
    config: HeadConfig, data: st.DataObject
) -> None:
    """TRAIN-9"""
    tensors = random_tensors(config)
    require_tensors(config, tensors, "x")
    name = data.draw(st.sampled_from(sorted(tensors)))
    without = {other: tensor for other, tensor in tensors.items() if other != name}
    with pytest.raises(LoadError, match=f"cannot load x: its weights lack the tensor {name}$"):
        require_tensors(config, without, "x")
    longer = tensors | {name: torch.cat([tensors[name], tensors[name]])}
    with pytest.raises(LoadError, match=f"tensor {name} has shape"):
        require_tensors(config, longer, "x")
    with pytest.raises(LoadError, match="the tensor stray is no part"):
        require_tensors(config, tensors | {"stray": torch.ones(1)}, "x")


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("fc.weight", Tensor.int, r"fc\.weight is int32, not floating point"),
        ("d2t", Tensor.float, "d2t is float32, not int64"),
        ("d2t", Tensor.int, "d2t is int32, not int64"),
        ("t2d", Tensor.float, "t2d is float32, not bool"),
    ],
)
def test_maps_are_never_numbers_of_the_weights_type(
    name: str, change: Callable[[Tensor], Tensor], problem: str
) -> None:
    tensors = random_tensors(eagle_config())
    with pytest.raises(LoadError, match=problem):
        require_tensors(eagle_config(), tensors | {name: change(tensors[name])}, "x")


def maps(offsets: list[int], marked: list[int]) -> dict[str, Tensor]:
    t2d = torch.zeros(VOCAB, dtype=torch.bool)
    t2d[marked] = True
    return {"d2t": torch.tensor(offsets), "t2d": t2d}


@pytest.mark.parametrize(
    ("offsets", "marked", "problem"),
    [
        ([0, 1, 5, 8], [0, 1, 5, 8], "draft id 1 to 2, .* offsets"),  # ids, not offsets
        ([0, 0, 3, 5], [0, 1, 5, 8, 9], "marks 5 token ids, but the head drafts 4"),
        ([0, 0, 3, 5], [0, 1, 5], "marks 3 token ids, but the head drafts 4"),
        ([0, 0, 3, 5], [0, 1, 5, 9], "draft id 3 to 8"),
        ([0, 0, 3, 13], [0, 1, 5, 8], "token ids 0 to 16, but the target has 16"),
        ([-1, 0, 3, 5], [0, 1, 5, 8], "token ids -1 to 8"),
        ([0, 0, 3, 2], [0, 1, 5, 8], "two draft ids to one token id"),
    ],
)
def test_maps_that_disagree_are_refused(
    offsets: list[int], marked: list[int], problem: str
) -> None:
    config = eagle_config(draft_vocab_size=4)
    tensors = random_tensors(config)
    require_tensors(config, tensors | maps([0, 0, 3, 5], [0, 1, 5, 8]), "x")
    with pytest.raises(LoadError, match=problem):
        require_tensors(config, tensors | maps(offsets, marked), "x")


def test_a_map_without_the_other_is_refused() -> None:
    """TRAIN-8"""
    tensors = random_tensors(eagle_config())
    for missing in ("d2t", "t2d"):
        without = {name: tensor for name, tensor in tensors.items() if name != missing}
        with pytest.raises(LoadError, match=f"lack the tensor {missing}"):
            require_tensors(eagle_config(), without, "x")


def test_the_first_layer_of_eagle_3_takes_embedding_and_state_side_by_side() -> None:
    shapes = expected_shapes(eagle_config(num_layers=2))
    assert shapes["layers.0.self_attn.q_proj.weight"] == (8, 16)
    assert shapes["layers.1.self_attn.q_proj.weight"] == (8, 8)
    assert "layers.1.hidden_norm.weight" not in shapes
    first = expected_shapes(eagle_config(1, num_layers=2))
    assert "layers.0.input_layernorm.weight" not in first
    assert "layers.1.input_layernorm.weight" in first


@pytest.mark.parametrize("ids", [[0, 2, 2, 5], [0, 3, 2, 5], [-1, 2, 3, 5], [0, 2, 3, VOCAB]])
def test_the_ids_a_draft_model_drafts_rise_within_the_targets(ids: list[int]) -> None:
    config = draft_config(4)
    tensors = random_tensors(config)
    require_tensors(config, tensors | {"token_ids": torch.tensor([0, 2, 3, VOCAB - 1])}, "x")
    with pytest.raises(LoadError, match="x: token_ids must rise, within 0 to 15"):
        require_tensors(config, tensors | {"token_ids": torch.tensor(ids)}, "x")
    with pytest.raises(LoadError, match="token_ids is int32, not int64"):
        require_tensors(config, tensors | {"token_ids": tensors["token_ids"].int()}, "x")
