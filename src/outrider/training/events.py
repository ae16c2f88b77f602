"""Files of events as TensorBoard reads them, written without it.

A file is a row of records as TensorFlow writes them (length, its checksum, the bytes, their
checksum); a record holds an `Event` of tensorflow/core/util/event.proto in Protocol Buffers.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed
_VERSION = b"brain.Event:2"
_START = 1  # of a session: what an earlier file says of this step and later ones is void


class EventFile:
    """One file of a run; each part of a run that was resumed has its own."""

    def __init__(self, folder: Path, after: int = 0) -> None:
        """Open a file for the steps behind `after`, which take the place of any written before."""
        # TensorBoard reads the files of a folder in the order of their names.
        name = f"events.out.tfevents.{time.time_ns():020d}.{os.getpid()}.outrider"
        self._file = (folder / name).open("wb")
        self._write(_bytes(3, _VERSION))
        if after:
            self._write(_integer(2, after + 1) + _bytes(7, _integer(1, _START)))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Append the values of a step."""
        found = b"".join(
            _bytes(1, _bytes(1, name.encode()) + _single(2, value))
            for name, value in values.items()
        )
        self._write(_integer(2, step) + _bytes(5, found))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, event: bytes) -> None:
        event = _double(1, time.time()) + event
        length = struct.pack("<Q", len(event))
        self._file.write(length + _masked(length) + event + _masked(event))
        self._file.flush()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (RFC 3720, appendix B.4) of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    found = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (_POLYNOMIAL if entry & 1 else 0)
        found.append(entry)
    return tuple(found)


_TABLE = _table()


def _masked(data: bytes) -> bytes:
    """Return the checksum as TensorFlow keeps it, so that it may be part of what is summed."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _single(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)
