"""Where a model spec points: the embedded model, a folder, a GGUF file, or the hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from outrider.errors import LoadError, OptionError
from outrider.targets.embedded import EMBEDDED_MODEL, embedded_gguf
from outrider.targets.gguf import GgufFile

if TYPE_CHECKING:
    import torch

Quantization: TypeAlias = Literal["int8", "bnb8"]
"""What a suffix makes of a model's weights: our int8, or bitsandbytes' 8 bits."""


@dataclass(frozen=True, slots=True)
class Source:
    """What Transformers' `from_pretrained` is given for a spec, and what then becomes of it."""

    spec: str
    location: str
    """A folder or a hub id; unused for a GGUF file."""
    gguf: GgufFile | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    quantization: Quantization | None = None

    def description(self) -> str:
        """Return where the configuration and the tokenizer are."""
        return self.location if self.gguf is None else str(self.gguf.description())

    def weights(self, dtype: torch.dtype | None) -> str:
        """Return where the weights are; a GGUF file is expanded to `dtype`."""
        if self.gguf is None:
            return self.location
        assert dtype is not None, "a GGUF file has no dtype of its own"
        return str(self.gguf.weights(dtype))

    def file_bytes(self) -> int | None:
        """Return the size of the weight files, None if they are not in a place of their own."""
        if self.gguf is not None:
            return self.gguf.size
        files = [*Path(self.location).glob("*.safetensors")] or [*Path(self.location).glob("*.bin")]
        return sum(file.stat().st_size for file in files) or None


def find_source(spec: str) -> Source:
    """Find out what a spec means.

    Raises LoadError if it can mean nothing, OptionError for an unknown suffix.
    """
    name, quantization = _split_suffix(spec)
    return replace(_find_named(name), spec=spec, quantization=quantization)


def _split_suffix(spec: str) -> tuple[str, Quantization | None]:
    """Take a suffix such as "@int8" off a spec, unless a file or folder has it in its name."""
    found = re.fullmatch(r"(.+)@([\w-]*)", spec, flags=re.DOTALL)
    if found is None or Path(spec).expanduser().exists():
        return spec, None
    name, suffix = found.groups()
    if suffix not in get_args(Quantization):
        known = " and ".join(f"@{one}" for one in get_args(Quantization))
        raise OptionError(f"model {spec!r} ends in the unknown suffix @{suffix}; known are {known}")
    return name, cast("Quantization", suffix)


def _find_named(spec: str) -> Source:
    if spec == EMBEDDED_MODEL:
        return Source(spec, spec, gguf=GgufFile(embedded_gguf()))
    path = Path(spec).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise LoadError(f"cannot load {spec}: the folder holds no config.json")
        return Source(spec, str(path))
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise LoadError(f"cannot load {spec}: it is a file, but neither a folder nor a .gguf")
        return Source(spec, str(path), gguf=GgufFile(path.resolve()))
    if _looks_like_a_path(spec):
        raise LoadError(f"cannot load {spec}: no such file or folder")
    return _hub_source(spec)


def _looks_like_a_path(spec: str) -> bool:
    """Tell a path that leads nowhere from a hub id, which is `name` or `owner/name`."""
    return (
        spec.startswith((".", "~", "/"))
        or spec.endswith((".gguf", "/"))
        or spec.count("/") > 1
        or "\\" in spec
    )


def _hub_source(spec: str) -> Source:
    """Ask the hub once, with no retries, whether it has the model; offline, use what is cached."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    try:
        HfApi().model_info(spec, timeout=10)
    except HFValidationError as error:
        raise LoadError(f"unknown model {spec!r}: no such folder, and not a hub id") from error
    except GatedRepoError as error:
        raise LoadError(
            f"cannot load {spec}: access is gated; accept its terms on the hub and log in"
        ) from error
    except RepositoryNotFoundError as error:
        raise LoadError(
            f"unknown model {spec!r}: no such folder, and no such model on the hub "
            "(or it is private and you are not logged in)"
        ) from error
    except HfHubHTTPError as error:
        reason = " ".join(str(error).split())
        raise LoadError(f"cannot load {spec}: the hub answered {reason[:200]}") from error
    except Exception as error:  # no network shows as any of several libraries' errors
        if not isinstance(try_to_load_from_cache(spec, "config.json"), str):
            raise LoadError(
                f"unknown model {spec!r}: no such folder, not among the downloaded models, "
                "and the hub cannot be reached"
            ) from error
        return Source(spec, spec, options={"local_files_only": True})
    return Source(spec, spec)
