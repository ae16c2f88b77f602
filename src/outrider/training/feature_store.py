"""The target's hidden states of texts, kept on disk: worked out once, read by every run and epoch.

A file of records, appended to as states are worked out; beside the states of a text may stand the
target's verdicts on it. A record holds the digest of its text, its size and a checksum; what a
killed run left of its last record is cut off, and a damaged record is worked out anew, never
trusted. States are kept in the type they were computed in, bit for bit; a run that learns with a
store learns what one without would have, but for the last bits of the verdicts.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from outrider.errors import OptionError
from outrider.training.prompts import prompt_key
from outrider.types import TokenIds

_KIND = "outrider features"
_KEY_BYTES = 24
_RECORD = struct.Struct(f"<{_KEY_BYTES}sIIQ")
"""Digest of the text, tokens, checksum, bytes of what is kept."""

_VERDICTS = b"v"  # begins the key of a text's verdicts; no digest begins so


class FeatureStore:
    """States of some layers of one target, by text; a context manager that closes the file.

    `made_with` tells the target (plain values), `layers` whose states are kept, `max_bytes` how
    large the file may become: what does not fit is not kept.

    Raises OptionError for a file that is something else, of another target, without the layers
    asked for, or that cannot be written.
    """

    def __init__(
        self,
        path: Path,
        made_with: Mapping[str, Any],
        layers: Sequence[int],
        *,
        dtype: torch.dtype,
        max_bytes: int,
    ) -> None:
        self._path = path
        self._dtype = dtype
        self._max_bytes = max_bytes
        self._index: dict[bytes, tuple[int, int, int]] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("a+b")
        except OSError as error:
            raise OptionError(f"{str(path)!r} cannot be written: {error.strerror}") from error
        try:
            self._open({"kind": _KIND, "dtype": str(dtype), **made_with}, tuple(layers))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> FeatureStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return sum(not key.startswith(_VERDICTS) for key in self._index)

    def read(self, ids: TokenIds) -> Tensor | None:
        """Return the states [L, T, H] of a text in the layers asked for; None if not kept."""
        data = self._read(_key(ids))
        if data is None:
            return None
        states = torch.frombuffer(data, dtype=self._dtype)
        return states.view(len(self._kept), len(ids), -1)[self._wanted]

    def write(self, ids: TokenIds, states: Tensor) -> None:
        """Keep the states [L, T, H] of a text in all layers of the store, if there is room."""
        if len(self._wanted) < len(self._kept):
            return  # a run that reads fewer layers than are kept has not all to keep
        ordered = torch.empty_like(states, dtype=self._dtype)
        ordered[self._wanted] = states.to(self._dtype)
        self._write(_key(ids), len(ids), ordered)

    def read_verdicts(self, ids: TokenIds) -> Tensor | None:
        """Return the target's verdicts [T, 2] on a text; None if not kept."""
        data = self._read(_verdict_key(ids))
        return None if data is None else torch.frombuffer(data, dtype=torch.float64).view(-1, 2)

    def write_verdicts(self, ids: TokenIds, verdicts: Tensor) -> None:
        """Keep the target's verdicts [T, 2] on a text, if there is room."""
        self._write(_verdict_key(ids), len(ids), verdicts.double())

    def _read(self, key: bytes) -> bytearray | None:
        place = self._index.get(key)
        if place is None:
            return None
        start, checksum, size = place
        self._file.seek(start)
        data = bytearray(self._file.read(size))
        if len(data) != size or zlib.crc32(data) != checksum:
            del self._index[key]
            return None
        return data

    def _write(self, key: bytes, tokens: int, values: Tensor) -> None:
        data = values.contiguous().cpu().view(torch.uint8).numpy().tobytes()
        end = self._file.seek(0, 2)
        if end + _RECORD.size + len(data) > self._max_bytes:
            return
        checksum = zlib.crc32(data)
        self._file.write(_RECORD.pack(key, tokens, checksum, len(data)) + data)
        self._file.flush()
        self._index[key] = (end + _RECORD.size, checksum, len(data))

    def _open(self, header: dict[str, Any], layers: tuple[int, ...]) -> None:
        """Read what is there, or begin; leave off what is not whole."""
        self._file.seek(0)
        first = self._file.readline()
        if not first:
            self._kept = layers
            self._file.write(json.dumps({**header, "layers": layers}).encode() + b"\n")
            self._file.flush()
        else:
            self._kept = self._layers_of(first, header)
        missing = [layer for layer in layers if layer not in self._kept]
        if missing:
            raise OptionError(
                f"the features in {str(self._path)!r} are of layers {_listed(self._kept)}, "
                f"not of {_listed(missing)}; name another file"
            )
        self._wanted = [self._kept.index(layer) for layer in layers]
        self._file.truncate(self._scan())

    def _layers_of(self, line: bytes, header: dict[str, Any]) -> tuple[int, ...]:
        try:
            found = json.loads(line)
            kept = tuple(int(layer) for layer in found.pop("layers"))
        except (ValueError, TypeError, KeyError, AttributeError):
            found, kept = {}, ()
        if found.get("kind") != _KIND:
            raise OptionError(f"{str(self._path)!r} is there already, and holds no features")
        for name, value in header.items():
            if found.get(name) != value:
                raise OptionError(
                    f"the features in {str(self._path)!r} were made with {name} "
                    f"{found.get(name)!r}, not {value!r}; name another file"
                )
        return kept

    def _scan(self) -> int:
        """Find all whole records; return where the last of them ends."""
        total = self._file.seek(0, 2)
        self._file.seek(0)
        end = len(self._file.readline())
        while end + _RECORD.size <= total:
            self._file.seek(end)
            key, _, checksum, size = _RECORD.unpack(self._file.read(_RECORD.size))
            start = end + _RECORD.size
            if start + size > total:
                break
            self._index[key] = (start, checksum, size)
            end = start + size
        return end


def _key(ids: TokenIds) -> bytes:
    return prompt_key(ids).encode()


def _verdict_key(ids: TokenIds) -> bytes:
    return (_VERDICTS + _key(ids))[:_KEY_BYTES]


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(str(layer) for layer in layers) or "none"
