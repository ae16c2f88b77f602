"""Hidden states that come with a pass, against those Transformers gives by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from outrider.errors import OptionError, UnsupportedModelError
from outrider.targets.base import NORMED, Rows, Target
from outrider.targets.graphed import GraphedPasses
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree
from support.scripted import ScriptedTarget
from support.tiny import random_ids, tiny_model

TREE = DraftTree((5, 6, 7, 8, 9, 3), (-1, 0, 0, -1, 3, 2))
LAYERS = (2, 0, NORMED)


def graphed_target(model: PreTrainedModel) -> Target:
    target = TransformersTarget(model)
    target._passes = GraphedPasses(model, target._cache, target.device)
    return target


TARGETS: dict[str, Callable[[PreTrainedModel], Target]] = {
    "eager": TransformersTarget,
    "invariant": lambda model: TransformersTarget(model, numerics="invariant"),
    "graphed": graphed_target,
    "compiled": lambda model: TransformersTarget(model, compile=True),
}

targets = pytest.mark.parametrize("make", TARGETS.values(), ids=TARGETS.keys())


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.getbasetemp() / "features-cache"
    monkeypatch.setenv("OUTRIDER_CACHE", str(folder))


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny_model(dtype=torch.float32, scale=2.0, num_hidden_layers=3)


def own_states(model: PreTrainedModel, tokens: tuple[int, ...]) -> torch.Tensor:
    """Return the states [T, layers * H] of `LAYERS` as Transformers gives them."""
    with torch.inference_mode():
        states = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    # Transformers norms the last of them.
    return torch.cat([states[2][0], states[0][0], states[-1][0]], dim=-1)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)


@targets
@pytest.mark.parametrize("length", [1, 30, 600])
def test_features_are_the_states_of_every_row_read(
    make: Callable[[PreTrainedModel], Target], length: int
) -> None:
    model = tiny_model(
        dtype=torch.float32, scale=2.0, num_hidden_layers=3, max_position_embeddings=1024
    )
    target = make(model)
    target.prepare(LAYERS)
    tokens = random_ids(length)
    sequence = target.open(640)
    (features,) = target.score([Rows(sequence, tokens)], LAYERS).features
    assert_close(features, own_states(model, tokens))


@targets
def test_features_of_a_node_are_those_of_its_path(
    make: Callable[[PreTrainedModel], Target], model: PreTrainedModel
) -> None:
    target = make(model)
    target.prepare(LAYERS)
    contexts = [random_ids(length, length) for length in (3, 40)]
    handles = [target.open(128) for _ in contexts]
    parts = [Rows(handle, c, TREE) for handle, c in zip(handles, contexts, strict=True)]
    scored = target.score(parts, LAYERS)
    for context, features in zip(contexts, scored.features, strict=True):
        assert len(features) == len(context) + len(TREE)
        for node, path in enumerate([(5,), (5, 6), (5, 7), (8,), (8, 9), (5, 7, 3)]):
            expected = own_states(model, (*context, *path))[-1]
            assert_close(features[len(context) + node], expected)


@targets
def test_asking_for_features_changes_no_logits(
    make: Callable[[PreTrainedModel], Target], model: PreTrainedModel
) -> None:
    target = make(model)
    target.prepare(LAYERS)
    context = random_ids(20)
    first, second = target.open(64), target.open(64)
    (plain,) = target.score([Rows(first, context, TREE)]).logits
    (asked,) = target.score([Rows(second, context, TREE)], LAYERS).logits
    assert torch.equal(plain, asked)


def test_the_state_that_leaves_the_last_layer_is_not_normed(model: PreTrainedModel) -> None:
    target = TransformersTarget(model)
    (found,) = target.score([Rows(target.open(8), (1, 2, 3))], (3, NORMED)).features
    last, normed = found.chunk(2, dim=-1)
    assert_close(model.model.norm(last), normed)


def test_nothing_is_left_in_the_model_after_a_pass() -> None:
    model = tiny_model(num_hidden_layers=3)
    target = TransformersTarget(model)
    target.score([Rows(target.open(8), (1, 2, 3))], LAYERS)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


@pytest.mark.parametrize("layer", [4, -2, 100])
def test_a_layer_that_is_not_there_is_refused_by_number(layer: int, model: PreTrainedModel) -> None:
    with pytest.raises(OptionError, match=rf"layer {layer} .* layers 0 to 3"):
        TransformersTarget(model).prepare((0, layer))


def test_a_target_without_hidden_states_refuses_to_give_any() -> None:
    with pytest.raises(UnsupportedModelError, match="gives no hidden states"):
        ScriptedTarget.saying([1], 8).prepare((0,))


@pytest.mark.parametrize("architecture", ["gemma2", "phi", "gpt2", "gpt_neox", "qwen3", "mixtral"])
def test_features_are_found_in_other_architectures(architecture: str) -> None:
    model = tiny_model(architecture, num_hidden_layers=2)
    target = TransformersTarget(model)
    tokens = random_ids(12)
    (found,) = target.score([Rows(target.open(16), tokens)], (1, NORMED)).features
    with torch.inference_mode():
        states = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    expected = torch.cat([states[1][0], states[-1][0]], dim=-1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
