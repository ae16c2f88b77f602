"""Int8 models read weight by weight, so that their floating weights never fill the memory.

Transformers builds the model with all it knows of names, ties and buffers, but is given a stand-in
of no size for the weight of each linear layer. The weights themselves are read when their layers
are quantised, one at a time, each through a mapping of its file that ends with it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch import Tensor

from outrider.targets.capabilities import brings_its_own_class
from outrider.targets.quantization import lone_linear_weights, quantize_int8

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_FILE = "model.safetensors"
_ADAPTER = "adapter_config.json"
"""Beside it, Transformers adds weights, or reads them from another place."""


@dataclass(frozen=True, slots=True)
class StoredTensors:
    """The tensors of a checkpoint that is stored as safetensors."""

    files: Mapping[str, str]
    """The file of each tensor, by name."""

    @classmethod
    def find(cls, location: str, options: Mapping[str, Any]) -> StoredTensors | None:
        """Find those of a folder or hub id, downloading what is missing; None for other formats.

        `options` are what Transformers' `from_pretrained` is given to find files.
        """
        if _stored_file(location, _ADAPTER, options) is not None:
            return None
        whole = _stored_file(location, _FILE, options)
        if whole is not None:
            return cls.of([whole])
        index = _stored_file(location, f"{_FILE}.index.json", options)
        if index is None:
            return None
        names = sorted(set(json.loads(Path(index).read_text("utf-8"))["weight_map"].values()))
        files = [_stored_file(location, name, options) for name in names]
        found = [file for file in files if file is not None]
        return cls.of(found) if len(found) == len(names) else None

    @classmethod
    def of(cls, files: Collection[str]) -> StoredTensors:
        """List the tensors of some files; of two with one name the later counts."""
        listed: dict[str, str] = {}
        for file in files:
            with safe_open(file, framework="pt") as opened:
                listed |= dict.fromkeys(opened.keys(), file)
        return cls(listed)

    def read(self, name: str) -> Tensor:
        """Return a tensor that lies in its file; the memory its reading takes ends with it."""
        with safe_open(self.files[name], framework="pt") as opened:
            tensor: Tensor = opened.get_tensor(name)
        return tensor

    def read_but(self, names: Collection[str], dtype: torch.dtype) -> dict[str, Tensor]:
        """Return all tensors, with stand-ins for those of some names.

        A stand-in has the shape of what it stands for, the given dtype, and room for one number.
        """
        tensors: dict[str, Tensor] = {}
        for file in set(self.files.values()):
            with safe_open(file, framework="pt") as opened:
                for name in [name for name, at in self.files.items() if at == file]:
                    if name in names:
                        shape = opened.get_slice(name).get_shape()
                        tensors[name] = torch.zeros((), dtype=dtype).expand(shape)
                    else:
                        tensors[name] = opened.get_tensor(name)
        return tensors


@dataclass(frozen=True, slots=True, eq=False)
class StreamedModel:
    """A model whose linear weights are yet to be read, and Transformers' report of its loading."""

    model: PreTrainedModel
    report: dict[str, Any]
    stored: StoredTensors
    stand_ins: Mapping[str, Tensor]

    def quantize(self, device: torch.device) -> None:
        """Read and quantise the weights one by one; the int8 layers end on `device`."""
        names = {tensor.data_ptr(): name for name, tensor in self.stand_ins.items()}

        def weight_of(weight: Tensor) -> Tensor:
            name = names.get(weight.data_ptr())
            return weight if name is None else self.stored.read(name).to(weight.dtype)

        quantize_int8(self.model, device=device, weight_of=weight_of)

    def is_whole(self) -> bool:
        """Whether every stand-in has come, unchanged, to where its weight belongs."""
        placed = dict(self.model.named_parameters())
        return all(
            name in placed and _is_same(placed[name], tensor)
            for name, tensor in self.stand_ins.items()
        )


def _is_same(one: Tensor, other: Tensor) -> bool:
    return (one.data_ptr(), one.shape, one.stride(), one.dtype) == (
        other.data_ptr(),
        other.shape,
        other.stride(),
        other.dtype,
    )


def stream_model(
    location: str,
    config: PreTrainedConfig,
    skeleton: PreTrainedModel,
    *,
    dtype: torch.dtype,
    options: Mapping[str, Any],
) -> StreamedModel | None:
    """Build a model whose linear weights are read later; None if Transformers has to read it.

    That is so for other formats than safetensors, and where tensors are not used as they are
    stored: fused or split ones, adapters, code that comes with the model, weights that are kept in
    a dtype of their own.
    """
    if not _is_stored_as_used(config, skeleton):
        return None
    stored = StoredTensors.find(location, options)
    if stored is None:
        return None
    names = lone_linear_weights(skeleton) & stored.files.keys()
    tensors = stored.read_but(names, dtype)
    make: Any = type(skeleton)
    model, report = make.from_pretrained(
        None,
        config=config,
        state_dict=tensors,
        generation_config=_generation_config(location, options),
        dtype=dtype,
        # What does not fit is reported by name, not filled with random numbers.
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    model.config.name_or_path = model.name_or_path = location
    streamed = StreamedModel(model, report, stored, {name: tensors[name] for name in names})
    return streamed if streamed.is_whole() or report["mismatched_keys"] else None


def _is_stored_as_used(config: PreTrainedConfig, skeleton: PreTrainedModel) -> bool:
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightRenaming

    return (
        not brings_its_own_class(config)
        and type(config) is type(skeleton).config_class
        and getattr(config, "transformers_weights", None) is None  # names another file
        and all(isinstance(c, WeightRenaming) for c in get_model_conversion_mapping(skeleton))
    )


def _stored_file(location: str, name: str, options: Mapping[str, Any]) -> str | None:
    from transformers.utils.hub import cached_file

    found: str | None = cached_file(
        location, name, _raise_exceptions_for_missing_entries=False, **options
    )
    return found


def _generation_config(location: str, options: Mapping[str, Any]) -> Any:
    """Return the generation settings stored with a model; None leaves the model's own defaults."""
    from transformers import GenerationConfig

    if _stored_file(location, "generation_config.json", options) is None:
        return None
    return GenerationConfig.from_pretrained(location, **options)
