"""The dtypes and devices a model may be asked for in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from outrider.errors import OptionError

if TYPE_CHECKING:
    import torch

    Dtype: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"] | torch.dtype

_DTYPES = ("auto", "float32", "bfloat16", "float16")


def parse_dtype(dtype: Dtype | str) -> torch.dtype | None:
    """Return the floating dtype meant, None for "auto"; raises OptionError."""
    import torch

    if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
        return dtype
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        hint = " (int8 weights are asked for by name: MODEL@int8)" if dtype == "int8" else ""
        raise OptionError(f"dtype is {dtype!r}; it must be one of {', '.join(_DTYPES)}{hint}")
    if dtype == "auto":
        return None
    named: torch.dtype = getattr(torch, dtype)
    return named


def parse_device(device: str | torch.device | None) -> torch.device:
    """Return the device meant, after touching it once to see that it is there.

    None is the GPU if there is one, else the CPU. Raises OptionError.
    """
    import torch

    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        parsed = torch.device(device)
        torch.empty(0, device=parsed)
    except (AssertionError, RuntimeError, TypeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise OptionError(
            f"device is {str(device)!r}; it must be a device of this machine, like 'cpu' ({reason})"
        ) from error
    if parsed.type == "meta":
        raise OptionError("device is 'meta', which computes nothing; it must be like 'cpu', 'cuda'")
    return parsed


def expanded_dtype(device: torch.device) -> torch.dtype:
    """Return what quantised weights are expanded to if no dtype is asked for."""
    import torch

    return torch.float32 if device.type == "cpu" else torch.bfloat16
