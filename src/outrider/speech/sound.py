"""From what a user passes as a recording to samples at the rate of a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from outrider.errors import PromptError
from outrider.speech.resample import resampled
from outrider.speech.wav import Sound, read_wav

Audio: TypeAlias = str | Path | np.ndarray[Any, Any] | Tensor | Mapping[str, Any]
"""The path of a WAV file, samples at the model's rate, or a mapping from "array" (or "raw") to
samples and from "sampling_rate" to theirs."""

_KINDS = "the path of a WAV file, an array of samples, or {'array': samples, 'sampling_rate': rate}"
_MOST_RATE = 768_000  # of recorders that there are


def samples_of(audio: object, rate: int, most_s: float) -> Tensor:
    """Return samples [n] in float32 at a model's rate.

    Raises PromptError for what is no recording, an empty one, and one of more than `most_s`.
    """
    sound = _sound(audio, rate)
    if not len(sound.samples):
        raise PromptError("the recording is empty: there is nothing to hear")
    if sound.seconds > most_s:
        raise PromptError(
            f"the recording is {sound.seconds:.1f} s long; the model hears {most_s:g} s at once: "
            "cut it into parts"
        )
    if not bool(sound.samples.isfinite().all()):
        raise PromptError("the recording holds samples that are not finite numbers")
    return resampled(sound.samples, sound.rate, rate)


def _sound(audio: object, rate: int) -> Sound:
    if isinstance(audio, str | Path):
        if not str(audio):
            raise PromptError("the recording is an empty path: give that of a WAV file")
        sound = read_wav(Path(audio))
        _check_rate(sound.rate)
        return sound
    if isinstance(audio, Mapping):
        return _of_mapping(audio)
    return Sound(_of_array(audio), rate)


def _of_mapping(audio: Mapping[str, Any]) -> Sound:
    arrays = [audio[name] for name in ("array", "raw") if audio.get(name) is not None]
    if len(arrays) != 1 or "sampling_rate" not in audio:
        raise PromptError(f"a recording with the keys {sorted(map(str, audio))} is not {_KINDS}")
    return Sound(_of_array(arrays[0]), _check_rate(audio["sampling_rate"]))


def _check_rate(rate: object) -> int:
    if isinstance(rate, bool) or not isinstance(rate, int) or not 0 < rate <= _MOST_RATE:
        raise PromptError(f"sampling_rate is {rate!r}: expected an integer, 1 to {_MOST_RATE}")
    return rate


def _of_array(audio: object) -> Tensor:
    if isinstance(audio, np.ndarray):
        audio = torch.from_numpy(np.ascontiguousarray(audio))
    if not isinstance(audio, Tensor):
        raise PromptError(f"a recording of type {type(audio).__name__} is not {_KINDS}")
    if audio.dim() != 1:
        shape = tuple(audio.shape)
        raise PromptError(f"the samples have the shape {shape}: expected one channel, [samples]")
    if not audio.is_floating_point():
        raise PromptError(
            f"the samples are {str(audio.dtype).removeprefix('torch.')}: expected floating point "
            "from -1 to 1 (divide those of 16 bits by 32768)"
        )
    return audio.detach().to("cpu", torch.float32)
