"""The weights of a target in the form a peer reads, converted once and kept in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.bench.peers.environment import PeerError
from outrider.bench.peers.kinds import PeerKind
from outrider.bench.peers.process import PeerProcess, adapter_command
from outrider.checkpoints.exports import export_head, fingerprint
from outrider.errors import OutriderError
from outrider.targets.devices import parse_dtype
from outrider.targets.diskcache import cached_folder
from outrider.targets.embedded import EMBEDDED_MODEL, embedded_gguf
from outrider.targets.sources import Source, find_source

if TYPE_CHECKING:
    import torch

_CONVERSION_S = 3600.0
_REVISION = 1
_GGUF = "model.gguf"


@dataclass(frozen=True, slots=True)
class PeerFiles:
    """What a peer is told to load; each a folder, a file or a hub id."""

    model: str
    draft_model: str | None = None
    head: str | None = None


def prepare_files(
    kind: PeerKind,
    mode: str,
    weights: str,
    *,
    python: Path,
    target: str,
    draft_model: str | None,
    head: str | None,
) -> PeerFiles:
    """Return what a peer loads for a mode, converting what it cannot read as it is.

    `weights` is the peer's name of their type, `head` the folder of an EAGLE-3 head, None the one
    that comes with outrider for the target. Raises OutriderError for what cannot be had.
    """
    wanted = kind.mode(mode)
    draft = None
    if wanted.needs_draft_model:
        if draft_model is None:
            raise PeerError(f"{kind.name} {mode} needs a draft model, and none was given")
        draft = _transformers_files(find_source(draft_model), weights)
    exported = str(export_head(head, target)) if wanted.needs_head else None
    return PeerFiles(_model(kind, weights, find_source(target), python), draft, exported)


def _model(kind: PeerKind, weights: str, source: Source, python: Path) -> str:
    if kind.name == "llama.cpp":
        return str(_gguf_file(source, weights))
    if kind.name == "openvino":
        return str(_openvino_folder(source, weights, python))
    return _transformers_files(source, weights)


def _transformers_files(source: Source, weights: str) -> str:
    if source.quantization is not None:
        raise PeerError(f"{source.spec} has weights of eight bits, which are outrider's own")
    return source.weights(_dtype(weights))


def _dtype(weights: str) -> torch.dtype | None:
    return parse_dtype("float32" if weights == "int8" else weights)


def _gguf_file(source: Source, weights: str) -> Path:
    """Return a GGUF file with these weights, made from the target's own."""
    from outrider.bench.peers.gguf_files import write_gguf

    if source.gguf is None:
        raise PeerError(
            f"llama.cpp reads GGUF files, and {source.spec} is none: convert it with llama.cpp's "
            "convert_hf_to_gguf.py and name the file as the target"
        )
    original = _gguf_path(source.spec)

    def build(entry: Path) -> None:
        write_gguf(original, weights, entry / _GGUF)

    name = f"llama.cpp-{fingerprint(original)}-{weights}-r{_REVISION}"
    return cached_folder(name, build) / _GGUF


def _gguf_path(spec: str) -> Path:
    """Return the file that a spec of a GGUF file means."""
    name = spec.partition("@")[0] if not Path(spec).expanduser().is_file() else spec
    return embedded_gguf() if name == EMBEDDED_MODEL else Path(name).expanduser().resolve()


def _openvino_folder(source: Source, weights: str, python: Path) -> Path:
    """Return the folder of a converted model; the peer's own tools convert it."""
    model = source.weights(_dtype(weights))
    tokenizer = source.description()

    def build(entry: Path) -> None:
        converter = PeerProcess("openvino", adapter_command(python, "openvino_convert"))
        request = {"model": model, "tokenizer": tokenizer, "weights": weights, "out": str(entry)}
        try:
            converter.ask(request, _CONVERSION_S)
        except OutriderError as error:
            raise PeerError(f"cannot convert {source.spec} for openvino: {error}") from error
        finally:
            converter.close()

    name = f"openvino-{fingerprint(Path(model), str(python))}-{weights}-r{_REVISION}"
    return cached_folder(name, build)
