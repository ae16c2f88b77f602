"""The types that weights are held in, as a benchmark names them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from outrider.errors import OptionError
from outrider.targets.sources import Quantization

if TYPE_CHECKING:
    from outrider.decoder import Decoder

_DTYPES = ("float32", "bfloat16", "float16")
_QUANTIZATIONS = get_args(Quantization)


def parse_weights(target: str, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the spec and the dtype to load a target with, for each type of weights.

    Raises OptionError for an unknown type, one that is named twice, and a target that names a type
    itself.
    """
    _, quantization = split_suffix(target)
    if quantization is not None:
        raise OptionError(f"target {target!r} names its weights itself: leave out @{quantization}")
    found = []
    for place, name in enumerate(names):
        if name not in (*_DTYPES, *_QUANTIZATIONS):
            known = ", ".join((*_DTYPES, *_QUANTIZATIONS))
            raise OptionError(f"weights {name!r} are unknown; known are {known}")
        if name in names[:place]:
            raise OptionError(f"weights {name!r} are named twice; name each once")
        found.append((target, name) if name in _DTYPES else (f"{target}@{name}", "auto"))
    return tuple(found)


def weights_of(decoder: Decoder) -> str:
    """Return the type of the weights that a decoder was loaded with."""
    _, quantization = split_suffix(decoder.name)
    return quantization or str(decoder.loaded.model.dtype).removeprefix("torch.")


def split_suffix(target: str) -> tuple[str, str | None]:
    """Take a suffix such as "@int8" off a target, unless a file or folder has it in its name."""
    name, _, suffix = target.rpartition("@")
    if suffix not in _QUANTIZATIONS or Path(target).expanduser().exists():
        return target, None
    return name, suffix
