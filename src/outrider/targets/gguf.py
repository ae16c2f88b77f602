"""GGUF files, converted once into the folders Transformers loads.

The quantised weights are expanded to ordinary ones; the folders are kept in the cache, since
reading a GGUF file takes many times as long as reading its conversion.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.errors import LoadError
from outrider.targets.diskcache import cached_folder, file_digest, intact_entry
from outrider.targets.quiet import quiet_transformers

if TYPE_CHECKING:
    import torch

    from outrider.targets.blocks import Blocks

_LOGGER = logging.getLogger("outrider")

_REVISION = 1
"""Raised when the conversion itself changes, so that older entries are left alone."""


class GgufFile:
    """One GGUF file and its conversions; the file is read once, to know it by its content."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entry_name = _entry_name(path)
        self.size = path.stat().st_size

    def description(self) -> Path:
        """Return a folder with the file's configuration and tokenizer, and no weights."""
        return cached_folder(f"{self._entry_name}-tokenizer", self._describe)

    def weights(self, dtype: torch.dtype) -> Path:
        """Return a folder with the file's configuration and its weights in `dtype`."""
        description = self.description()

        def build(folder: Path) -> None:
            self._convert(description, dtype, folder)

        return cached_folder(f"{self._entry_name}-{str(dtype).removeprefix('torch.')}", build)

    def blocks(self, *, make: bool) -> dict[str, Blocks] | None:
        """Return the weights that can be read in the file's own blocks, by name.

        Found once, which takes a while: None if they were not yet and `make` is false.
        """
        import torch

        from outrider.targets.blocks import read_blocks, write_blocks
        from outrider.targets.gguf_blocks import blocks_of

        name = f"{self._entry_name}-blocks"

        def build(folder: Path) -> None:
            _LOGGER.info("reading the blocks of %s (once; this takes a while)", self._path.name)
            expanded = self.weights(torch.float32)
            with self._reading():
                write_blocks(folder, blocks_of(self._path, expanded))

        entry = cached_folder(name, build) if make else intact_entry(name)
        return None if entry is None else read_blocks(entry)

    def _describe(self, folder: Path) -> None:
        from transformers import AutoConfig, AutoTokenizer

        _LOGGER.info("reading the tokenizer of %s (once)", self._path.name)
        with self._reading():
            where, name = self._path.parent, self._path.name
            config = AutoConfig.from_pretrained(where, gguf_file=name)
            tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=name)
            config.save_pretrained(folder)
            tokenizer.save_pretrained(folder)

    def _convert(self, description: Path, dtype: torch.dtype, folder: Path) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        _LOGGER.info("converting %s (once; this takes a while)", self._path.name)
        from_pretrained: Any = AutoModelForCausalLM.from_pretrained
        with self._reading():
            model, report = from_pretrained(
                self._path.parent,
                gguf_file=self._path.name,
                config=AutoConfig.from_pretrained(description),
                dtype=dtype,
                output_loading_info=True,
            )
            if report["missing_keys"]:
                raise LoadError(f"{self._path} lacks the tensor {min(report['missing_keys'])}")
            # The expanded model still calls itself quantised, and would refuse to be saved.
            model.hf_quantizer = None
            model.is_quantized = False
            for leftover in ("quantization_config", "quantization_method"):
                for owner in (model, model.config):
                    if hasattr(owner, leftover):
                        delattr(owner, leftover)
            model.save_pretrained(folder)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Keep Transformers quiet; turn whatever a damaged file makes it raise into LoadError."""
        try:
            # The bar over the tensors ignores Transformers' settings and goes to stderr.
            with quiet_transformers(), contextlib.redirect_stderr(io.StringIO()):
                yield
        except LoadError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())
            raise LoadError(
                f"cannot read {self._path}: damaged or unknown GGUF file ({reason})"
            ) from error


def _entry_name(path: Path) -> str:
    """Return a name that changes with the file's content and with the versions of its readers."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic != b"GGUF":
            raise LoadError(f"{path} is not a GGUF file (it does not begin with 'GGUF')")
        identity = f"{path.stat().st_size}-{file_digest(path)[:16]}"
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror or error}") from error
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", path.stem)[:64]
    versions = [f"{name}{importlib.metadata.version(name)}" for name in ("transformers", "gguf")]
    return "-".join([stem, identity, *versions, f"r{_REVISION}"])
