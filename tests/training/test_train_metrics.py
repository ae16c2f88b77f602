"""The table and the event file of a run hold every step once, however often it was stopped."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.errors import TrainingError
from outrider.training.events import EventFile, crc32c
from outrider.training.figures import Figures, acceptance_length
from outrider.training.metrics import TABLE, MetricsLog, Row, read_rows


def row(step: int) -> Row:
    return {"loss": 1 / step, "alpha_1": 0.1 * step, "held": None if step % 2 else 2.0}


def write(folder: Path, steps: range, after: int = 0) -> None:
    with MetricsLog(folder, after) as log:
        for step in steps:
            log.write(step, row(step))


def test_rows_come_back_as_they_were_written_to_the_last_bit(tmp_path: Path) -> None:
    write(tmp_path, range(1, 6))
    assert read_rows(tmp_path / TABLE) == [{"step": step, **row(step)} for step in range(1, 6)]
    head, first, *_ = (tmp_path / TABLE).read_text().splitlines()
    assert (head, first) == ("step,loss,alpha_1,held", "1,1.0,0.1,")


def test_a_table_is_the_same_whether_or_not_its_run_was_stopped(tmp_path: Path) -> None:
    write(tmp_path / "whole", range(1, 9))
    write(tmp_path / "parts", range(1, 7))
    write(tmp_path / "parts", range(5, 8), after=4)
    write(tmp_path / "parts", range(8, 9), after=7)
    whole, parts = (tmp_path / name / TABLE for name in ("whole", "parts"))
    assert parts.read_bytes() == whole.read_bytes()


def test_a_table_cut_anywhere_in_its_last_row_is_gone_on_with(tmp_path: Path) -> None:
    write(tmp_path, range(1, 4))
    path = tmp_path / TABLE
    whole = path.read_bytes()
    start = whole.rstrip(b"\n").rindex(b"\n") + 1
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        assert len(read_rows(path)) == 2
        write(tmp_path, range(3, 4), after=2)
        assert path.read_bytes() == whole


def test_a_run_that_starts_over_leaves_no_old_rows(tmp_path: Path) -> None:
    write(tmp_path, range(1, 4))
    with MetricsLog(tmp_path) as log:
        log.write(1, {"other": 1.0})
    assert read_rows(tmp_path / TABLE) == [{"step": 1, "other": 1.0}]


def test_a_row_of_another_kind_is_refused(tmp_path: Path) -> None:
    write(tmp_path, range(1, 3))
    with (
        MetricsLog(tmp_path, 2) as log,
        pytest.raises(TrainingError, match=r"metrics\.csv has the columns step, loss, alpha_1"),
    ):
        log.write(3, {"loss": 1.0})


def test_checksums_are_those_of_the_standard() -> None:
    """The vectors of RFC 3720, appendix B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(bytes(range(31, -1, -1))) == 0x113FDB5C


def records(path: Path) -> Iterator[bytes]:
    """Read a file of records, and check every sum."""
    data = path.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8])
        record, sum_ = data[12 : 12 + length], data[12 + length : 16 + length]
        assert struct.unpack("<I", sum_)[0] == masked(record)
        yield record
        data = data[16 + length :]


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) % 2**32


def fields(data: bytes) -> dict[int, list[int | bytes]]:
    """Take a message of Protocol Buffers apart."""
    found: dict[int, list[int | bytes]] = {}
    while data:
        key, data = varint(data)
        kind = key & 7
        value: int | bytes
        if kind == 0:
            value, data = varint(data)
        else:
            size = {1: 8, 5: 4}.get(kind, -1)
            if size < 0:
                size, data = varint(data)
            value, data = data[:size], data[size:]
        found.setdefault(key >> 3, []).append(value)
    return found


def varint(data: bytes) -> tuple[int, bytes]:
    value = 0
    for place, byte in enumerate(data):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, data[place + 1 :]
    raise AssertionError("a number without an end")


def values(event: bytes) -> dict[str, float]:
    (summary,) = fields(event)[5]
    assert isinstance(summary, bytes)
    parts = [fields(one) for one in fields(summary)[1] if isinstance(one, bytes)]
    return {str(p[1][0], "utf-8"): struct.unpack("<f", p[2][0])[0] for p in parts}  # type: ignore[arg-type]


def test_event_files_hold_what_tensorboard_looks_for(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.add(300, {"loss": 0.5, "alpha_1": 0.25})
    file.close()
    (path,) = tmp_path.iterdir()
    assert "tfevents" in path.name
    version, event = records(path)
    assert fields(version)[3] == [b"brain.Event:2"]
    assert fields(event)[2] == [300]
    assert values(event) == {"loss": 0.5, "alpha_1": 0.25}


def test_a_resumed_run_voids_the_steps_it_makes_again(tmp_path: Path) -> None:
    write(tmp_path, range(1, 7))
    write(tmp_path, range(5, 7), after=4)
    first, second = sorted(tmp_path.glob("events.*"))
    assert [fields(one).get(2) for one in records(first)] == [None, *([s] for s in range(1, 7))]
    _, start, *rest = records(second)
    assert fields(start)[2] == [5]
    assert fields(start)[7] == [b"\x08\x01"]  # a session starts: later steps before it are void
    assert [fields(one)[2] for one in rest] == [[5], [6]]
    assert values(rest[0]) == pytest.approx({"loss": 1 / 5, "alpha_1": 0.5})


def test_the_acceptance_length_of_a_chain_counts_the_ways_it_can_end() -> None:
    """tau = sum over lengths of length times its probability."""
    alphas = (0.8, 0.5, 0.25)
    chances = (0.2, 0.8 * 0.5, 0.8 * 0.5 * 0.75, 0.8 * 0.5 * 0.25)
    expected = sum(length * chance for length, chance in enumerate(chances, 1))
    assert acceptance_length(alphas) == pytest.approx(expected)
    assert acceptance_length(()) == 1
    assert Figures(0.0, alphas, ()).tau == acceptance_length(alphas)
