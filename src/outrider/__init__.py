"""Lossless speculative decoding: the text plain decoding gives, in fewer passes of the model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.assembly import load
    from outrider.decoder import Decoder
    from outrider.drafters.base import Drafter
    from outrider.dropin.custom_generate import custom_generate
    from outrider.engine.result import Result
    from outrider.engine.session import Session
    from outrider.errors import OutriderError
    from outrider.sampling.params import SamplingParams
    from outrider.stream import Stream
    from outrider.types import Chunk, Token

__version__ = "0.1.0"

# Loaded when first used: importing outrider touches no device and loads no kernels.
_HOMES = {
    "load": "outrider.assembly",
    "custom_generate": "outrider.dropin.custom_generate",
    "Decoder": "outrider.decoder",
    "Stream": "outrider.stream",
    "Session": "outrider.engine.session",
    "Result": "outrider.engine.result",
    "SamplingParams": "outrider.sampling.params",
    "Drafter": "outrider.drafters.base",
    "Chunk": "outrider.types",
    "Token": "outrider.types",
    "OutriderError": "outrider.errors",
}

__all__ = [
    "Chunk",
    "Decoder",
    "Drafter",
    "OutriderError",
    "Result",
    "SamplingParams",
    "Session",
    "Stream",
    "Token",
    "custom_generate",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'outrider' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
