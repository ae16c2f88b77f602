"""Tiny random Whispers, in float64 so that no two logits tie, and recordings of noise and tones."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from outrider.types import Recording
from support.tiny import VOCAB

START, EN, DE, FR, TRANSCRIBE, TRANSLATE, NO_TIMES = 2, 3, 4, 5, 6, 7, 63
SUPPRESSED = (10, 33)
NOT_FIRST = (58, 13, 1)
RATE = 16_000

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "num_mel_bins": 8,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "d_model": 32,
    "max_source_positions": 50,  # one second
    "max_target_positions": 64,
    "pad_token_id": 1,
    "bos_token_id": 1,
    "eos_token_id": None,
    "decoder_start_token_id": START,
    "tie_word_embeddings": False,
}
_DRAWN = (30.0, 10)
"""The scale of weight matrices, and the seed, that give texts that vary and follow the sound."""


def _sounds() -> tuple[Tensor, ...]:
    generator = np.random.default_rng(0)
    noise = [
        generator.standard_normal(length) * loudness
        for length, loudness in ((12_000, 0.1), (3_000, 0.01), (9_000, 1.0))
    ]
    tone = np.sin(np.arange(RATE) / RATE * 2 * np.pi * 700)
    return tuple(torch.tensor(sound, dtype=torch.float32) for sound in (*noise, tone))


SOUNDS = _sounds()


def speech_settings(**changes: Any) -> GenerationConfig:
    """Return a generation config such as those of multilingual Whispers."""
    settings: dict[str, Any] = {
        "decoder_start_token_id": START,
        "pad_token_id": 1,
        "bos_token_id": 1,
        "lang_to_id": {"<|en|>": EN, "<|de|>": DE, "<|fr|>": FR},
        "task_to_id": {"transcribe": TRANSCRIBE, "translate": TRANSLATE},
        "no_timestamps_token_id": NO_TIMES,
        "is_multilingual": True,
        "max_length": 64,
        "suppress_tokens": list(SUPPRESSED),
        "begin_suppress_tokens": list(NOT_FIRST),
    }
    build: Any = GenerationConfig  # untyped
    found: GenerationConfig = build(**(settings | changes))
    return found


def tiny_whisper(
    *,
    seed: int | None = None,
    dtype: torch.dtype = torch.float64,
    settings: GenerationConfig | None = None,
    **overrides: Any,
) -> PreTrainedModel:
    """Build a random speech model; weight matrices are scaled so that text is not constant."""
    scale, usual_seed = _DRAWN
    with torch.random.fork_rng():
        torch.manual_seed(usual_seed if seed is None else seed)
        model: Any = WhisperForConditionalGeneration(WhisperConfig(**(_SIZES | overrides)))
    model = model.to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter.requires_grad:  # sinusoids stay what they are
                parameter.mul_(scale)
    model.generation_config = speech_settings() if settings is None else settings
    built: PreTrainedModel = model.eval()
    return built


@functools.cache
def shared_whisper() -> PreTrainedModel:
    """Return the usual model, built once; tests do not change it."""
    return tiny_whisper()


def extractor(**changes: Any) -> WhisperFeatureExtractor:
    """Return what makes the features of such models."""
    build: Any = WhisperFeatureExtractor  # untyped
    found: WhisperFeatureExtractor = build(**({"feature_size": 8, "chunk_length": 1} | changes))
    return found


def features(sound: Tensor, model: PreTrainedModel) -> Tensor:
    """Return the log-mel features [1, mels, frames] of a sound."""
    extract: Any = extractor()
    found: Tensor = extract(sound.numpy(), sampling_rate=RATE, return_tensors="pt").input_features
    return found.to(model.dtype)


def greedy_speech(model: PreTrainedModel, sound: Tensor, **options: Any) -> list[int]:
    """Return what Transformers' own greedy generation says of a sound."""
    generate: Any = model.generate  # untyped
    ids: list[int] = generate(features(sound, model), **options)[0].tolist()
    return ids


def recording(index: int = 0) -> Recording:
    """Return one of the sounds as a target takes it."""
    return Recording(SOUNDS[index])


def count_hearings(model: PreTrainedModel) -> list[int]:
    """Return a list that grows by the batch of each run of a model's encoder."""
    heard: list[int] = []
    whole: Any = model

    def note(_: object, args: tuple[Tensor, ...], __: object) -> None:
        heard.append(len(args[0]))

    whole.model.encoder.register_forward_hook(note)
    return heard
