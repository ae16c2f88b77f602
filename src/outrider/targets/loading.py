"""Models, tokenizers and configurations, from wherever the user has them.

A spec is the name of the embedded model, a local folder, the path of a .gguf file, or a model id
on the Hugging Face hub; a suffix such as "@int8" quantises its weights. Whatever goes wrong comes
out as one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.errors import OptionError, UnsupportedModelError
from outrider.targets.capabilities import brings_its_own_class, reads_audio, require_supported
from outrider.targets.devices import expanded_dtype, parse_device, parse_dtype
from outrider.targets.offload import execution_device, parse_spread
from outrider.targets.sources import Source, find_source
from outrider.targets.weights import one_line, read_weights

if TYPE_CHECKING:
    import torch
    from transformers import (
        PreTrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
        WhisperFeatureExtractor,
    )

    from outrider.targets.devices import Dtype
    from outrider.targets.gguf import GgufFile


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model ready to be driven, its tokenizer if there is one, and the name it was asked by."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    name: str
    gguf: GgufFile | None = None
    """The file its weights were expanded from, exactly, if compiled passes may read them there."""
    extractor: WhisperFeatureExtractor | None = None
    """What makes the features of a speech model; None for the usual one, and for other models."""


def load_model(
    spec: str | PreTrainedModel,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    dtype: Dtype | str = "auto",
    device: str | torch.device | None = None,
    max_memory: Mapping[str | int, str | int] | None = None,
    offload_folder: str | None = None,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load a causal language model in evaluation mode, with its tokenizer.

    `spec` may end in "@int8" or "@bnb8" for weights of eight bits, which is another model and
    keeps the suffix in its name. `dtype` "auto" is the checkpoint's own; a GGUF file, the
    embedded model among them, has none, and is expanded to float32 on a CPU and bfloat16
    elsewhere. `device` None is the GPU if there is one; "auto" spreads the weights over GPUs,
    main memory and disk, as far as `max_memory` lets it (bytes, or text like "10GiB", by GPU
    number or "cpu"; None: what is free), with files in `offload_folder` (None: a temporary one).
    A `tokenizer` given here replaces the spec's own. A model that is already loaded is used as it
    stands, never moved, converted or otherwise modified.

    Raises LoadError (also for weights that do not fit), UnsupportedModelError (not a causal
    language model, or one whose cache cannot be rolled back) and OptionError (dtype, device,
    offloading, quantisation).
    """
    chosen_dtype = parse_dtype(dtype)
    spread = parse_spread(device, max_memory, offload_folder)
    if not isinstance(spec, str):
        return _adopt(spec, tokenizer, chosen_dtype, device)
    where = parse_device(None) if spread is not None else parse_device(device)
    source = find_source(spec)
    config = read_config(source, trust_remote_code)
    if not (trust_remote_code and brings_its_own_class(config)):
        require_supported(config, name=spec)
    if tokenizer is None:
        tokenizer = read_tokenizer(source, trust_remote_code)
    extractor = read_extractor(source) if reads_audio(config) else None
    if chosen_dtype is None and source.gguf is not None:
        chosen_dtype = expanded_dtype(where)
    model = read_weights(
        source,
        config,
        dtype=chosen_dtype,
        where=spread or where,
        trust_remote_code=trust_remote_code,
    )
    require_supported(model.config, name=spec, model_class=type(model))
    return LoadedModel(model, tokenizer, spec, _file_of(source, model), extractor)


def _file_of(source: Source, model: PreTrainedModel) -> GgufFile | None:
    """Return the GGUF file whose blocks stand for the very weights of a model, if there is one."""
    is_exact = source.quantization is None and str(model.dtype) == "torch.float32"
    return source.gguf if is_exact else None


def load_tokenizer(spec: str, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a spec, no weights; raises LoadError."""
    return read_tokenizer(find_source(spec), trust_remote_code)


def load_config(spec: str, *, trust_remote_code: bool = False) -> PreTrainedConfig:
    """Load the configuration of a spec, no weights; raises LoadError."""
    return read_config(find_source(spec), trust_remote_code)


def _adopt(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    dtype: torch.dtype | None,
    device: str | torch.device | None,
) -> LoadedModel:
    """Take a loaded model as it is; options that would change it are refused."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise OptionError(f"model is {model!r}; it must be a spec or a Transformers model")
    name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    if dtype is not None and dtype != model.dtype:
        raise OptionError(f"dtype is {dtype}, but {name} is already loaded in {model.dtype}")
    if device is not None:
        _require_on(device, execution_device(model), name)
    if model.training:
        raise OptionError(
            f"{name} is in training mode, where dropout acts; call model.eval() first"
        )
    head: Any = model.get_output_embeddings  # untyped there
    if head() is None:
        raise UnsupportedModelError(f"{name} is not supported: it has no language-model head")
    require_supported(model.config, name=name, model_class=type(model))
    return LoadedModel(model, tokenizer, name)


def _require_on(device: str | torch.device, found: torch.device, name: str) -> None:
    if device != "auto":
        wanted = parse_device(device)
        if wanted.type == found.type and wanted.index in (None, found.index):
            return
    raise OptionError(f"device is {str(device)!r}, but {name} is already loaded on {found}")


def read_config(source: Source, trust_remote_code: bool) -> PreTrainedConfig:
    """Read the configuration of a source; raises LoadError."""
    from transformers import AutoConfig

    with one_line(f"cannot load {source.spec}: no usable config.json"):
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            source.description(), trust_remote_code=trust_remote_code, **source.options
        )
    return config


def read_extractor(source: Source) -> WhisperFeatureExtractor:
    """Read what makes the features of a speech model; raises LoadError."""
    from transformers import WhisperFeatureExtractor

    with one_line(f"no usable feature extractor (preprocessor_config.json) in {source.spec}"):
        extractor: WhisperFeatureExtractor = WhisperFeatureExtractor.from_pretrained(
            source.description(), **source.options
        )
    return extractor


def read_tokenizer(source: Source, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """Read the tokenizer of a source; raises LoadError."""
    from transformers import AutoTokenizer

    with one_line(f"no usable tokenizer in {source.spec}"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source.description(), trust_remote_code=trust_remote_code, **source.options
        )
    return tokenizer
