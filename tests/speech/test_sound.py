"""What users pass as recordings: files, arrays, and mappings as data sets have them."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.errors import PromptError
from outrider.speech.sound import samples_of

RATE, MOST_S = 16_000, 1.0
WAVE = (np.sin(np.arange(8_000) / 20) * 0.5).astype(np.float32)


def samples(audio: Any) -> list[float]:
    found: list[float] = samples_of(audio, RATE, MOST_S).tolist()
    return found


def write(path: Path, rate: int = RATE) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((WAVE * 32_768).astype("<i2").tobytes())
    return path


def test_arrays_are_samples_at_the_rate_of_the_model() -> None:
    wanted = WAVE.tolist()
    for audio in (WAVE, torch.tensor(WAVE), WAVE.astype(np.float64), WAVE[::-1][::-1]):
        assert samples(audio) == wanted


def test_files_are_read_by_their_paths(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav")
    assert samples(path) == samples(str(path))
    assert np.abs(np.array(samples(path)) - WAVE).max() < 1 / 32_000


def test_another_rate_becomes_that_of_the_model(tmp_path: Path) -> None:
    assert len(samples(write(tmp_path / "a.wav", 8_000))) == 2 * len(WAVE)
    for name in ("array", "raw"):
        assert len(samples({name: WAVE, "sampling_rate": 32_000})) == len(WAVE) // 2


def test_names_that_data_sets_add_are_passed_over(tmp_path: Path) -> None:
    assert samples({"path": None, "array": WAVE, "sampling_rate": RATE}) == WAVE.tolist()


REFUSED: dict[str, tuple[Any, str]] = {
    "nothing": (np.zeros(0, np.float32), "the recording is empty"),
    "too long": (np.zeros(16_001, np.float32), "is 1.0 s long; the model hears 1 s at once"),
    "too long at another rate": (
        {"array": np.zeros(96_000, np.float32), "sampling_rate": 48_000},
        "is 2.0 s long",
    ),
    "no numbers": (np.array([0.0, np.nan]), "not finite numbers"),
    "two channels": (np.zeros((2, 8)), r"have the shape \(2, 8\): expected one channel"),
    "whole numbers": (np.zeros(8, np.int16), "the samples are int16: expected floating point"),
    "ids": ((5, 6, 7), "a recording of type tuple is not the path of a WAV file"),
    "bytes": (b"RIFF", "a recording of type bytes is not"),
    "no rate": ({"array": WAVE}, r"with the keys \['array'\] is not"),
    "two sounds": ({"array": WAVE, "raw": WAVE, "sampling_rate": RATE}, "is not the path"),
    "a rate of 0": ({"array": WAVE, "sampling_rate": 0}, "sampling_rate is 0: expected"),
    "a broken rate": ({"array": WAVE, "sampling_rate": 16e3}, "sampling_rate is 16000.0"),
    "no path": ("", "the recording is an empty path"),
    "no file": ("no/such.wav", "cannot be read: No such file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_recording_is_refused(case: str) -> None:
    audio, message = REFUSED[case]
    with pytest.raises(PromptError, match=message):
        samples(audio)
