"""Models whose weights are kept in fewer bits: int8 made here, or what Transformers reads.

A quantised model is a model of its own, with a name of its own (`MODEL@int8`): it does not say
what the floating one says, and what outrider promises holds against plain decoding of that very
quantised model.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from outrider.errors import LoadError, OptionError, UnsupportedModelError
from outrider.targets.int8 import Int8Linear, quantize_rows, scale_dtype

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def quantize_int8(
    model: PreTrainedModel,
    *,
    device: torch.device | None = None,
    weight_of: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Replace every linear layer, the head included, by one with int8 weights, in place.

    The layers end on `device` (None: where they are); the rest stays as and where it is. Each
    floating weight is freed as soon as it is quantised. Embeddings keep theirs, also where the
    head shares it. `weight_of` gives the weight to quantise for the one in the model (None: that
    one). For models that outrider has loaded, never for one a user has handed in. Raises
    OptionError (quantised already, or offloaded) and UnsupportedModelError.
    """
    name = type(model).__name__
    method = quantization_method(model.config)
    if method is not None or is_int8(model):
        raise OptionError(f"{name} is quantised already, with {method or 'int8'}")
    if any(parameter.device.type == "meta" for parameter in model.parameters()):
        raise OptionError(f"{name} holds offloaded weights, which cannot be quantised")
    require_quantizable(model, name)
    places = _linear_layers(model)
    while places:  # the last reference to a layer is the one taken out here
        layer, paths = places.popitem()
        quantised = _int8_of(layer, weight_of, device).train(layer.training)
        for path in paths:
            parent, _, child = path.rpartition(".")
            setattr(model.get_submodule(parent), child, quantised)


def is_int8(model: nn.Module) -> bool:
    """Whether the model's linear layers have int8 weights made here."""
    return any(isinstance(module, Int8Linear) for module in model.modules())


def require_quantizable(model: nn.Module, name: str) -> None:
    """Raise UnsupportedModelError if a weight matrix is no linear layer's; needs shapes alone."""
    for path, module in model.named_modules():
        if _is_linear(module) or isinstance(module, nn.Embedding):
            continue
        for key, parameter in module.named_parameters(recurse=False):
            if parameter.dim() > 1:
                where = f"{path}.{key}".removeprefix(".")
                raise UnsupportedModelError(
                    f"{name} cannot be quantised to int8: {where} belongs to a "
                    f"{type(module).__name__}, not to a linear layer"
                )


def int8_bytes(model: nn.Module, dtype: torch.dtype, *, with_head: bool = True) -> int:
    """Return the bytes of a floating model's weights in int8, the rest in `dtype`; shapes do."""
    head: Any = getattr(model, "get_output_embeddings", lambda: None)()
    layers = [layer for layer in _linear_layers(model) if with_head or layer is not head]
    total = kept_bytes(model, dtype, layers)
    for layer in layers:
        weight: Any = layer.weight
        outputs = weight.shape[1] if isinstance(layer, Conv1D) else weight.shape[0]
        total += weight.numel() + outputs * scale_dtype(dtype).itemsize
    return total


def kept_bytes(
    model: nn.Module, dtype: torch.dtype, layers: Collection[nn.Module] | None = None
) -> int:
    """Return the bytes in `dtype` of all but the weights of `layers` (None: all linear layers).

    Weights that embeddings share stay with them.
    """
    layers = _linear_layers(model).keys() if layers is None else layers
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    gone = {id(layer.weight) for layer in layers} - embeddings
    kept = (p.numel() for p in model.parameters() if id(p) not in gone)
    return sum(kept) * dtype.itemsize


def largest_linear_bytes(model: nn.Module, dtype: torch.dtype) -> int:
    """Return the bytes in `dtype` of the largest weight of a linear layer; shapes do."""
    weights: list[Any] = [layer.weight for layer in _linear_layers(model)]
    return max((weight.numel() for weight in weights), default=0) * dtype.itemsize


def lone_linear_weights(model: nn.Module) -> set[str]:
    """Return the names of the weights that one linear layer has, and nothing else."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    weights: list[Any] = [layer.weight for layer in _linear_layers(model)]
    return {names[id(weight)][0] for weight in weights if len(names[id(weight)]) == 1}


def _linear_layers(model: nn.Module) -> dict[nn.Module, list[str]]:
    """Return every linear layer and the paths it is found at: more than one if it is shared."""
    places: dict[nn.Module, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if _is_linear(module):
            places.setdefault(module, []).append(path)
    return places


def _is_linear(module: nn.Module) -> bool:
    # A subclass may do something else with its weight.
    return type(module) in (nn.Linear, Conv1D)


def _int8_of(
    layer: nn.Module,
    weight_of: Callable[[Tensor], Tensor] | None,
    device: torch.device | None,
) -> Int8Linear:
    weight: Any = layer.weight
    bias: Any = layer.bias
    weight = (weight if weight_of is None else weight_of(weight)).detach()
    matrix = weight.T if isinstance(layer, Conv1D) else weight
    if bias is not None and device is not None:
        bias = nn.Parameter(bias.detach().to(device), requires_grad=bias.requires_grad)
    return Int8Linear(*quantize_rows(matrix, device), bias)


# -- what Transformers quantises ---------------------------------------------------------------


def quantization_method(config: PreTrainedConfig) -> str | None:
    """Return the name of the method a checkpoint is quantised with, None if it is not."""
    for holder in (config, config.get_text_config(decoder=True)):
        found: Any = getattr(holder, "quantization_config", None)
        if found:
            values = found if isinstance(found, dict) else found.to_dict()
            method = values.get("quant_method")
            return str(getattr(method, "value", method) or "an unnamed method")
    return None


def require_known_method(config: PreTrainedConfig, name: str) -> None:
    """Raise LoadError for a method Transformers does not know: it would load without a word."""
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

    method = quantization_method(config)
    known = {key.partition("_4bit")[0].partition("_8bit")[0] for key in AUTO_QUANTIZER_MAPPING}
    if method is not None and method not in known:
        raise LoadError(f"{name} is quantised with {method}, which Transformers does not know")


def require_bnb8(name: str, device: torch.device | None) -> None:
    """Check that bitsandbytes can quantise on `device` (None: any GPU there is).

    Raises OptionError without a CUDA device, LoadError without the package.
    """
    if (device is None and not torch.cuda.is_available()) or (device and device.type != "cuda"):
        raise OptionError(f"{name} needs a CUDA device; @int8 quantises on any")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise LoadError(f"{name} needs a package: pip install bitsandbytes")


def bnb8_config() -> Any:
    """Return what makes Transformers quantise to bitsandbytes' 8 bits while it loads."""
    from transformers import BitsAndBytesConfig

    make: Any = BitsAndBytesConfig  # untyped
    return make(load_in_8bit=True)
