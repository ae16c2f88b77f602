"""WAV files: samples of 8 to 32 bits or floating point, of any rate and number of channels.

The standard library's reader refuses floating point, and before Python 3.12 the extended header
that most files of 24 bits have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outrider.errors import PromptError

_PCM, _FLOAT, _EXTENDED = 1, 3, 0xFFFE
_UNKNOWN_SIZE = 0xFFFFFFFF  # of data that was written as a stream


@dataclass(frozen=True, slots=True)
class Sound:
    """Samples [n] of one channel, in float32 and as a rule from -1 to 1, and how many a second."""

    samples: Tensor
    rate: int

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / self.rate


@dataclass(frozen=True, slots=True)
class _Format:
    """How a file holds its samples."""

    kind: int
    channels: int
    rate: int
    bits: int


def is_wav(path: Path) -> bool:
    """Whether a file begins as WAV files do; False for one that cannot be read."""
    try:
        with path.open("rb") as file:
            return _is_riff(file.read(12))
    except OSError:
        return False


def read_wav(path: Path) -> Sound:
    """Read a WAV file; several channels become their mean.

    Raises PromptError for a file that cannot be read, is damaged, or is of another kind.
    """
    name = repr(str(path))
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PromptError(f"the recording {name} cannot be read: {error.strerror}") from error
    if not _is_riff(content):
        raise PromptError(
            f"the recording {name} is no WAV file: convert it, for example with "
            f"`ffmpeg -i {path.name} -ar 16000 -ac 1 {path.stem}.wav`"
        )
    form: _Format | None = None
    for label, chunk, size in _chunks(content):
        if label == b"fmt ":
            form = _read_format(chunk, name)
        elif label == b"data":
            if form is None:
                break
            if len(chunk) < size != _UNKNOWN_SIZE:
                raise PromptError(
                    f"the recording {name} ends early: {len(chunk)} bytes of {size} are there"
                )
            return Sound(_mono(chunk, form), form.rate)
    raise PromptError(f"the recording {name} is a damaged WAV file: it has no samples")


def _is_riff(content: bytes) -> bool:
    return content[:4] == b"RIFF" and content[8:12] == b"WAVE"


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield the label of each part of a file, what is there of it, and the size it claims."""
    place = 12
    while place + 8 <= len(content):
        label, size = struct.unpack_from("<4sI", content, place)
        yield label, content[place + 8 : place + 8 + size], size
        place += 8 + size + size % 2


def _read_format(chunk: bytes, name: str) -> _Format:
    if len(chunk) < 16:
        raise PromptError(f"the recording {name} is a damaged WAV file: its header is cut short")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if kind == _EXTENDED and len(chunk) >= 26:
        (kind,) = struct.unpack_from("<H", chunk, 24)  # the first two bytes of the sub-format
    widths = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64)}.get(kind)
    if widths is None or bits not in widths:
        raise PromptError(
            f"the recording {name} holds samples of {bits} bits in format {kind}, which is not "
            "known: PCM of 8, 16, 24 or 32 bits and floating point are"
        )
    if not channels or not rate:
        raise PromptError(
            f"the recording {name} is a damaged WAV file: {channels} channels at {rate} Hz"
        )
    return _Format(kind, channels, rate, bits)


def _mono(data: bytes, form: _Format) -> Tensor:
    """Return the mean of the channels [n]; an incomplete last frame is left out."""
    frame = form.channels * form.bits // 8
    values = _numbers(data[: len(data) - len(data) % frame], form)
    mean = values.reshape(-1, form.channels).mean(axis=1, dtype=np.float64)
    return torch.from_numpy(mean.astype(np.float32))


def _numbers(data: bytes, form: _Format) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return samples as numbers from -1 to 1."""
    if form.kind == _FLOAT:
        return np.frombuffer(data, f"<f{form.bits // 8}").astype(np.float64)
    if form.bits == 8:  # unsigned, unlike all others
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) / 128
    if form.bits == 24:
        wide = np.zeros((len(data) // 3, 4), np.uint8)  # the upper bytes of 32 bits
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.reshape(-1).view("<i4") / 2.0**31
    return np.frombuffer(data, f"<i{form.bits // 8}") / 2.0 ** (form.bits - 1)
