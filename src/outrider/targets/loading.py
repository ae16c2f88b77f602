"""Models, tokenizers and configurations, from wherever the user has them.

A spec is the name of the embedded model, a local folder, the path of a .gguf file, or a model id
on the Hugging Face hub. Whatever goes wrong comes out as one line.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.errors import LoadError, OptionError, OutriderError, UnsupportedModelError
from outrider.targets.capabilities import require_supported
from outrider.targets.devices import expanded_dtype, parse_device, parse_dtype
from outrider.targets.quiet import quiet_transformers
from outrider.targets.sources import Source, find_source

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from outrider.targets.devices import Dtype

_LOGGER = logging.getLogger("outrider")


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model ready to be driven, its tokenizer if there is one, and the name it was asked by."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    name: str


def load_model(
    spec: str | PreTrainedModel,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    dtype: Dtype | str = "auto",
    device: str | torch.device | None = None,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load a causal language model in evaluation mode, with its tokenizer.

    `dtype` "auto" is the checkpoint's own; a GGUF file, the embedded model among them, has none,
    and is expanded to float32 on a CPU and bfloat16 elsewhere. `device` None is the GPU if there
    is one. A `tokenizer` given here replaces the spec's own. A model that is already loaded is
    used as it stands, never moved, converted or otherwise modified.

    Raises LoadError, UnsupportedModelError (not a causal language model, or one whose cache
    cannot be rolled back) and OptionError (dtype, device).
    """
    chosen_dtype = parse_dtype(dtype)
    if not isinstance(spec, str):
        return _adopt(spec, tokenizer, chosen_dtype, device)
    chosen_device = parse_device(device)
    source = find_source(spec)
    config = read_config(source, trust_remote_code)
    if not (trust_remote_code and brings_its_own_class(config)):
        require_supported(config, name=spec)
    if tokenizer is None:
        tokenizer = read_tokenizer(source, trust_remote_code)
    if chosen_dtype is None and source.gguf is not None:
        chosen_dtype = expanded_dtype(chosen_device)
    model = _read_model(source, chosen_dtype, trust_remote_code)
    require_supported(model.config, name=spec, model_class=type(model))
    module: torch.nn.Module = model  # Transformers narrows the type of `to`
    with _one_line(f"cannot move {spec} to {chosen_device}"):
        module.to(chosen_device)
    return LoadedModel(model, tokenizer, spec)


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
        wanted = parse_device(device)
        if wanted.type != model.device.type or wanted.index not in (None, model.device.index):
            raise OptionError(f"device is {wanted}, but {name} is already loaded on {model.device}")
    if model.training:
        raise OptionError(
            f"{name} is in training mode, where dropout acts; call model.eval() first"
        )
    head: Any = model.get_output_embeddings  # untyped there
    if head() is None:
        raise UnsupportedModelError(f"{name} is not supported: it has no language-model head")
    require_supported(model.config, name=name, model_class=type(model))
    return LoadedModel(model, tokenizer, name)


def brings_its_own_class(config: PreTrainedConfig) -> bool:
    """Whether the model's class comes with the checkpoint, to be known only once it is loaded."""
    return "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})


def read_config(source: Source, trust_remote_code: bool) -> PreTrainedConfig:
    """Read the configuration of a source; raises LoadError."""
    from transformers import AutoConfig

    with _one_line(f"cannot load {source.spec}: no usable config.json"):
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            source.description(), trust_remote_code=trust_remote_code, **source.options
        )
    return config


def read_tokenizer(source: Source, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """Read the tokenizer of a source; raises LoadError."""
    from transformers import AutoTokenizer

    with _one_line(f"no usable tokenizer in {source.spec}"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source.description(), trust_remote_code=trust_remote_code, **source.options
        )
    return tokenizer


def _read_model(
    source: Source, dtype: torch.dtype | None, trust_remote_code: bool
) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    from_pretrained: Any = AutoModelForCausalLM.from_pretrained
    with _one_line(f"cannot load the weights of {source.spec}"):
        model, report = from_pretrained(
            source.weights(dtype),
            dtype="auto" if dtype is None else dtype,
            trust_remote_code=trust_remote_code,
            # What does not fit is reported by name below, not filled with random numbers.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **source.options,
        )
        for tensor, found, wanted in sorted(report["mismatched_keys"]):
            raise LoadError(
                f"{source.spec}: tensor {tensor} has shape {list(found)}, "
                f"but its config.json asks for {list(wanted)}"
            )
        for tensor in sorted(report["missing_keys"]):
            raise LoadError(f"{source.spec}: its weights lack the tensor {tensor}")
        for tensor in sorted(report["unexpected_keys"])[:1]:
            more = len(report["unexpected_keys"]) - 1
            _LOGGER.warning("%s: unused tensor %s and %d more", source.spec, tensor, more)
    loaded: PreTrainedModel = model
    return loaded


@contextlib.contextmanager
def _one_line(problem: str) -> Iterator[None]:
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
