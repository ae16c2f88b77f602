"""The weights of a source, read to where they compute, as they are or in fewer bits."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from outrider.errors import LoadError, OptionError, OutriderError
from outrider.targets.capabilities import auto_class
from outrider.targets.free_memory import available_memory
from outrider.targets.memory import require_room
from outrider.targets.offload import Spread
from outrider.targets.quantization import (
    bnb8_config,
    int8_bytes,
    kept_bytes,
    largest_linear_bytes,
    quantization_method,
    quantize_int8,
    require_bnb8,
    require_known_method,
    require_quantizable,
)
from outrider.targets.quiet import quiet_transformers
from outrider.targets.skeleton import build_skeleton, count_parameters
from outrider.targets.streaming import stream_model

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

    from outrider.targets.sources import Source

    Where: TypeAlias = torch.device | Spread

_LOGGER = logging.getLogger("outrider")


def read_weights(
    source: Source,
    config: PreTrainedConfig,
    *,
    dtype: torch.dtype | None,
    where: Where,
    trust_remote_code: bool,
) -> PreTrainedModel:
    """Read a model's weights to a device or spread them; the source's suffix quantises them.

    `dtype` None is the checkpoint's own. What cannot be done, or does not fit, is refused before
    any weight is read: LoadError, OptionError, UnsupportedModelError.
    """
    _check_quantization(source, config, where)
    skeleton = None
    if quantization_method(config) is None:  # else its size is the method's business
        skeleton = build_skeleton(config, source.spec, trust_remote_code=trust_remote_code)
    if skeleton is not None:
        _check_room(source, skeleton, dtype or stored_dtype(config), where)
    options = {"trust_remote_code": trust_remote_code} | _placement(source, config, where)
    if source.quantization == "bnb8":
        options["quantization_config"] = bnb8_config()
    if isinstance(where, Spread):
        with where.loading():
            model = _read_model(source, config, dtype, options)
        where.outlive(model)
        return model
    if source.quantization == "int8":
        model = _read_int8(source, config, skeleton, dtype, where, options)
    else:
        model = _read_model(source, config, dtype, options)
    if "device_map" not in options:
        module: torch.nn.Module = model  # Transformers narrows the type of `to`
        with one_line(f"cannot move {source.spec} to {where}"):
            module.to(where)
    return model


def _check_quantization(source: Source, config: PreTrainedConfig, where: Where) -> None:
    """Refuse what a checkpoint's own quantisation or the suffix asks for and cannot be had."""
    require_known_method(config, source.spec)
    method = quantization_method(config)
    if source.quantization is not None and method is not None:
        raise OptionError(f"cannot quantise {source.spec}: it is quantised already, with {method}")
    if source.quantization == "int8" and isinstance(where, Spread):
        raise OptionError(f"device is 'auto', but {source.spec} stands on one device: name it")
    if source.quantization == "bnb8":
        require_bnb8(source.spec, None if isinstance(where, Spread) else where)


def _check_room(
    source: Source, skeleton: PreTrainedModel, dtype: torch.dtype, where: Where
) -> None:
    """Refuse, from shapes alone, weights that cannot be quantised or do not fit."""
    if source.quantization == "int8":
        require_quantizable(skeleton, source.spec)
    if isinstance(where, Spread):
        return
    for device, (needed, form) in _needs(source, skeleton, dtype, where).items():
        require_room(source.spec, needed, form, device, available_memory(device))


def _needs(
    source: Source, skeleton: PreTrainedModel, dtype: torch.dtype, where: torch.device
) -> dict[torch.device, tuple[int, str]]:
    """Return the bytes of weights that each device must hold at once, and in what form."""
    import torch

    cpu = torch.device("cpu")
    floating = _floating_bytes(skeleton, dtype)
    if source.quantization is None:
        return {where: floating}
    if source.quantization == "bnb8":
        return {where: (int8_bytes(skeleton, dtype, with_head=False), "int8")}
    if source.gguf is not None:  # its conversion, if that is yet to be made, holds all weights
        return {where: (int8_bytes(skeleton, dtype), "int8"), cpu: floating}
    largest = largest_linear_bytes(skeleton, dtype)  # read to main memory one at a time
    if where == cpu:
        return {cpu: (int8_bytes(skeleton, dtype) + largest, "int8")}
    kept = kept_bytes(skeleton, dtype) + largest, floating[1]
    return {where: (int8_bytes(skeleton, dtype), "int8"), cpu: kept}


def _floating_bytes(skeleton: PreTrainedModel, dtype: torch.dtype) -> tuple[int, str]:
    return count_parameters(skeleton) * dtype.itemsize, str(dtype).removeprefix("torch.")


def stored_dtype(config: PreTrainedConfig) -> torch.dtype:
    """Return the dtype that a checkpoint says its weights have."""
    import torch

    stored: torch.dtype | None = getattr(config.get_text_config(decoder=True), "dtype", None)
    return stored or torch.float32


def _placement(source: Source, config: PreTrainedConfig, where: Where) -> dict[str, Any]:
    """Return what Transformers needs to know of where the weights go.

    Weights to be quantised here are read to main memory: each goes on when it is small.
    """
    if isinstance(where, Spread):
        return where.options()
    is_direct = where.type != "cpu" and source.quantization != "int8"
    if is_direct or quantization_method(config) is not None:
        return {"device_map": {"": where}}
    return {}


def _read_int8(
    source: Source,
    config: PreTrainedConfig,
    skeleton: PreTrainedModel | None,
    dtype: torch.dtype | None,
    device: torch.device,
    options: dict[str, Any],
) -> PreTrainedModel:
    """Read weights one by one and quantise each, or all at once where it takes Transformers."""
    streamed = None
    known_dtype = dtype or getattr(config, "dtype", None)
    if skeleton is not None and known_dtype is not None:
        with one_line(f"cannot load the weights of {source.spec}"):
            streamed = stream_model(
                source.weights(dtype), config, skeleton, dtype=known_dtype, options=source.options
            )
    if streamed is not None:
        _check_report(source.spec, streamed.report)
        streamed.quantize(device)
        return streamed.model
    if skeleton is not None:
        _require_all_at_once(source, skeleton, known_dtype or stored_dtype(config))
    model = _read_model(source, config, dtype, options)
    quantize_int8(model, device=device)
    return model


def _require_all_at_once(source: Source, skeleton: PreTrainedModel, dtype: torch.dtype) -> None:
    import torch

    cpu = torch.device("cpu")
    needed, form = _floating_bytes(skeleton, dtype)
    require_room(source.spec, needed, form, cpu, available_memory(cpu))


def _read_model(
    source: Source, config: PreTrainedConfig, dtype: torch.dtype | None, options: dict[str, Any]
) -> PreTrainedModel:
    from_pretrained: Any = auto_class(config).from_pretrained
    method = quantization_method(config)
    quantised = "" if method is None else f", quantised with {method}"
    with one_line(f"cannot load the weights of {source.spec}{quantised}"):
        model, report = from_pretrained(
            source.weights(dtype),
            dtype="auto" if dtype is None else dtype,
            # What does not fit is reported by name below, not filled with random numbers.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
            **source.options,
        )
    _check_report(source.spec, report)
    if method is not None and getattr(model, "hf_quantizer", None) is None:
        _LOGGER.warning(
            "%s: its %s weights are expanded to %s on this machine",
            source.spec,
            method,
            model.dtype,
        )
    loaded: PreTrainedModel = model
    return loaded


def _check_report(name: str, report: dict[str, Any]) -> None:
    for tensor, found, wanted in sorted(report["mismatched_keys"]):
        raise LoadError(
            f"{name}: tensor {tensor} has shape {list(found)}, "
            f"but its config.json asks for {list(wanted)}"
        )
    for tensor in sorted(report["missing_keys"]):
        raise LoadError(f"{name}: its weights lack the tensor {tensor}")
    for tensor in sorted(report["unexpected_keys"])[:1]:
        more = len(report["unexpected_keys"]) - 1
        _LOGGER.warning("%s: unused tensor %s and %d more", name, tensor, more)


@contextlib.contextmanager
def one_line(problem: str) -> Iterator[None]:
    """Keep Transformers quiet; turn whatever it raises into one line that begins with `problem`."""
    try:
        with quiet_transformers():
            yield
    except OutriderError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if "trust_remote_code" in reason:
            reason = "it brings code of its own, which runs only with trust_remote_code=True"
        raise LoadError(f"{problem} ({reason[:300]})") from error
