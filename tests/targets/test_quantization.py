"""An int8 model is the floating model of its rounded weights, and decodes like any other."""

from __future__ import annotations

import importlib.util
import weakref
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from outrider.drafters.suffix import SuffixDrafter
from outrider.errors import LoadError, OptionError, UnsupportedModelError
from outrider.targets import quantization
from outrider.targets.int8 import Int8Linear, quantize_rows
from outrider.targets.quantization import (
    int8_bytes,
    is_int8,
    quantization_method,
    quantize_int8,
    require_bnb8,
    require_quantizable,
)
from outrider.targets.transformers import TransformersTarget
from support.runs import assert_same, decode, make_request
from support.tiny import random_ids, tiny_model

MODELS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True}),
    ("qwen2", {}),
    ("gemma2", {}),
    ("gpt2", {}),
    ("phi", {}),
]


def _quantised(architecture: str, **options: Any) -> PreTrainedModel:
    model = tiny_model(architecture, **options)
    quantize_int8(model)
    return model


def _logits(model: PreTrainedModel) -> Tensor:
    run: Any = model
    with torch.no_grad():
        logits: Tensor = run(torch.tensor([random_ids(12)]), use_cache=False).logits
    return logits


def _head(model: Any) -> Any:
    return model.get_output_embeddings()


def _with_rounded_weights(model: PreTrainedModel, int8_model: PreTrainedModel) -> PreTrainedModel:
    """Give each linear layer of a floating model what the int8 one stands for."""
    rounded = deepcopy(model)
    head = _head(rounded)
    head.weight = nn.Parameter(head.weight.detach().clone())  # no longer the embedding's
    for name, layer in int8_model.named_modules():
        if isinstance(layer, Int8Linear):
            plain: Any = rounded.get_submodule(name)
            weight = layer.weight * layer.scale[:, None]
            plain.weight.data = weight.T if isinstance(plain, Conv1D) else weight
    return rounded


@pytest.mark.parametrize(("architecture", "options"), MODELS)
def test_an_int8_model_says_what_its_rounded_weights_say(
    architecture: str, options: dict[str, Any]
) -> None:
    model = tiny_model(architecture, **options)
    int8_model = _quantised(architecture, **options)
    expected = _logits(_with_rounded_weights(model, int8_model))
    torch.testing.assert_close(_logits(int8_model), expected, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(expected, _logits(model), rtol=1e-4)


@pytest.mark.parametrize(("architecture", "options"), MODELS)
def test_all_linear_layers_and_nothing_else_are_quantised(
    architecture: str, options: dict[str, Any]
) -> None:
    model = tiny_model(architecture, **options)
    int8_model = _quantised(architecture, **options)
    assert isinstance(_head(int8_model), Int8Linear)
    for name, module in model.named_modules():
        now = int8_model.get_submodule(name)
        if isinstance(module, nn.Linear | Conv1D):
            assert isinstance(now, Int8Linear), name
            continue
        assert type(now) is type(module)
        for key, parameter in module.named_parameters(recurse=False):
            assert torch.equal(now.get_parameter(key), parameter), (name, key)
    assert int8_model.dtype == model.dtype
    assert is_int8(int8_model) and not is_int8(model)
    assert not any(module.training for module in int8_model.modules())


@pytest.mark.parametrize(("architecture", "options"), MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_bytes_are_known_from_shapes(
    dtype: torch.dtype, architecture: str, options: dict[str, Any]
) -> None:
    model = tiny_model(architecture, dtype=dtype, **options)
    planned = int8_bytes(model, dtype)
    quantize_int8(model)
    layers = [module for module in model.modules() if isinstance(module, Int8Linear)]
    held = [*model.parameters(), *(t for layer in layers for t in (layer.weight, layer.scale))]
    assert planned == sum(tensor.nbytes for tensor in held)


def test_each_floating_weight_is_freed_before_the_next_is_quantised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model: Any = tiny_model()
    storages = [weakref.ref(m.weight) for m in model.modules() if type(m) is nn.Linear]
    alive: list[int] = []

    def counting(weight: Tensor, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        alive.append(sum(reference() is not None for reference in storages))
        return quantize_rows(weight, device)

    monkeypatch.setattr(quantization, "quantize_rows", counting)
    quantize_int8(model)
    assert alive == list(range(len(storages), 0, -1))
    assert all(reference() is None for reference in storages)


def test_a_layer_used_twice_stays_one_layer() -> None:
    model: Any = tiny_model()
    model.model.layers[1].mlp.up_proj = model.model.layers[0].mlp.up_proj
    quantize_int8(model)
    assert model.model.layers[1].mlp.up_proj is model.model.layers[0].mlp.up_proj
    assert isinstance(model.model.layers[1].mlp.up_proj, Int8Linear)


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_text_of_an_int8_model_is_its_own_plain_text(architecture: str) -> None:
    target = TransformersTarget(_quantised(architecture))
    request = make_request(random_ids(12) * 3, max_new_tokens=24, temperature=0.0)
    plain = decode(target, request, max_draft=0)
    found = decode(target, request, SuffixDrafter(), max_draft=4)
    assert_same(found, plain)
    assert found.stats.accepted > 0


@pytest.mark.parametrize("architecture", ["mixtral", "qwen3_moe"])
def test_experts_are_refused_by_name_and_left_as_they_were(architecture: str) -> None:
    model = tiny_model(architecture)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(UnsupportedModelError, match=r"model\.layers\.0\.mlp\..* not to a linear"):
        quantize_int8(model)
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())


def test_a_layer_that_only_descends_from_a_linear_one_is_refused() -> None:
    class Doubled(nn.Linear):
        pass

    model: Any = tiny_model()
    model.lm_head = Doubled(32, 64, bias=False)
    with pytest.raises(UnsupportedModelError, match=r"lm_head\.weight belongs to a Doubled"):
        require_quantizable(model, "it")


def test_nothing_is_quantised_twice() -> None:
    model = _quantised("llama")
    with pytest.raises(OptionError, match="quantised already, with int8"):
        quantize_int8(model)
    other: Any = tiny_model()
    other.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    with pytest.raises(OptionError, match="quantised already, with gptq"):
        quantize_int8(other)


def test_the_method_of_a_checkpoint_is_found_where_it_may_stand() -> None:
    config: Any = tiny_model().config
    assert quantization_method(config) is None
    config.quantization_config = {"quant_method": "awq"}
    assert quantization_method(config) == "awq"
    config.quantization_config = {"bits": 4}
    assert quantization_method(config) == "an unnamed method"


def test_bnb8_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="x@bnb8 needs a CUDA device"):
        require_bnb8("x@bnb8", torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OptionError, match="x@bnb8 needs a CUDA device"):
        require_bnb8("x@bnb8", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LoadError, match="x@bnb8 needs a package: pip install bitsandbytes"):
        require_bnb8("x@bnb8", torch.device("cuda"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    require_bnb8("x@bnb8", torch.device("cuda", 0))
