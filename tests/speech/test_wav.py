"""WAV files: every width reads as the same sound, and what is none is refused in a line."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from outrider.errors import PromptError
from outrider.speech.wav import is_wav, read_wav

SOUND = np.array([0.0, 0.5, -0.5, 0.25, -1.0, 0.75])


def stored(sound: np.ndarray, bits: int) -> bytes:
    """Return samples as PCM of so many bits has them."""
    if bits == 8:
        return (sound * 128 + 128).astype(np.uint8).tobytes()
    whole = (sound * 2.0 ** (bits - 1)).astype("<i4")
    if bits == 24:
        return b"".join(int(one).to_bytes(3, "little", signed=True) for one in whole)
    return whole.astype(f"<i{bits // 8}").tobytes()


def write_pcm(path: Path, data: bytes, *, bits: int = 16, channels: int = 1) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(bits // 8)
        file.setframerate(16_000)
        file.writeframes(data)
    return path


def riff(*parts: tuple[bytes, bytes]) -> bytes:
    """Return a file of labelled parts, each padded to an even size."""
    body = b"".join(
        label + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
        for label, data in parts
    )
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def header(kind: int, bits: int, channels: int = 1, rate: int = 8_000) -> bytes:
    frame = channels * bits // 8
    return struct.pack("<HHIIHH", kind, channels, rate, rate * frame, frame, bits)


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_samples_of_every_width_are_the_same_sound(tmp_path: Path, bits: int) -> None:
    sound = read_wav(write_pcm(tmp_path / "a.wav", stored(SOUND, bits), bits=bits))
    assert sound.rate == 16_000 and sound.samples.dtype == torch.float32
    assert sound.samples.tolist() == SOUND.tolist()
    assert sound.seconds == len(SOUND) / 16_000


@pytest.mark.parametrize("bits", [32, 64])
def test_floating_point_is_taken_as_it_is(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "a.wav"
    data = SOUND.astype(f"<f{bits // 8}").tobytes()
    path.write_bytes(riff((b"fmt ", header(3, bits)), (b"data", data)))
    assert read_wav(path).samples.tolist() == SOUND.tolist()


def test_an_extended_header_names_its_format_behind_the_usual_one(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    rest = struct.pack("<HHIH", 22, 24, 0, 1) + bytes(14)
    form = (b"fmt ", header(0xFFFE, 24) + rest)
    path.write_bytes(riff(form, (b"data", stored(SOUND, 24))))
    assert read_wav(path).samples.tolist() == SOUND.tolist()


def test_several_channels_become_their_mean(tmp_path: Path) -> None:
    both = np.stack([SOUND, np.zeros_like(SOUND)], axis=1).reshape(-1)
    sound = read_wav(write_pcm(tmp_path / "a.wav", stored(both, 16), channels=2))
    assert sound.samples.tolist() == (SOUND / 2).tolist()


def test_other_parts_of_a_file_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    parts = [(b"LIST", b"odd"), (b"fmt ", header(1, 16)), (b"fact", bytes(4))]
    path.write_bytes(riff(*parts, (b"data", stored(SOUND, 16)), (b"LIST", b"more")))
    assert read_wav(path).samples.tolist() == SOUND.tolist()


def test_what_was_written_as_a_stream_has_no_size_and_goes_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    content = riff((b"fmt ", header(1, 16)), (b"data", stored(SOUND, 16)))
    path.write_bytes(content.replace(struct.pack("<I", 12), b"\xff" * 4))
    assert read_wav(path).samples.tolist() == SOUND.tolist()


FORMAT = (b"fmt ", header(1, 16))
REFUSED = {
    "another kind": (b"ID3\x04" + bytes(40), r"is no WAV file: convert it, .*ffmpeg -i a\.wav"),
    "nothing": (b"", "is no WAV file"),
    "no samples": (riff(FORMAT), "is a damaged WAV file: it has no samples"),
    "no header": (riff((b"data", bytes(8))), "is a damaged WAV file: it has no samples"),
    "half a header": (riff((b"fmt ", bytes(9))), "its header is cut short"),
    "cut": (
        riff(FORMAT, (b"data", stored(SOUND, 16)))[:-4],
        "ends early: 8 bytes of 12 are there",
    ),
    "mu-law": (riff((b"fmt ", header(7, 8)), (b"data", b"")), "of 8 bits in format 7"),
    "twelve bits": (riff((b"fmt ", header(1, 12)), (b"data", b"")), "of 12 bits in format 1"),
    "no channels": (riff((b"fmt ", header(1, 16, 0)), (b"data", b"")), "0 channels at 8000 Hz"),
    "no rate": (riff((b"fmt ", header(1, 16, 1, 0)), (b"data", b"")), "1 channels at 0 Hz"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_heard_is_refused(tmp_path: Path, case: str) -> None:
    content, message = REFUSED[case]
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(PromptError, match=message):
        read_wav(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="cannot be read: No such file"):
        read_wav(tmp_path / "none.wav")
    assert not is_wav(tmp_path / "none.wav")


def test_a_wav_file_is_known_by_how_it_begins(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("RIFF is a word")
    assert not is_wav(text)
    assert is_wav(write_pcm(tmp_path / "a", stored(SOUND, 16)))
