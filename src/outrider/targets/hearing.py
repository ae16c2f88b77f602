"""What a speech model hears of recordings: log-mel features, and what its encoder makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, WhisperFeatureExtractor

from outrider.errors import OptionError, UnsupportedModelError
from outrider.types import Recording

STRIDE = 2
"""Frames of features that the encoder makes one position of, by its second convolution."""

# What features depend on, beside the sound.
_FEATURES = (
    "feature_size",
    "sampling_rate",
    "hop_length",
    "n_fft",
    "n_samples",
    "padding_value",
    "dither",
)

# What an encoder computes beside its weights.
_SETTINGS = ("encoder_layers", "encoder_attention_heads", "activation_function")


class Hearing:
    """The encoder of a speech model: it hears each recording once, however many texts are about it.

    What it made of a recording is kept for as long as the recording is. Several models may share
    one.
    """

    def __init__(
        self,
        encode: Callable[[Tensor], Tensor],
        extractor: WhisperFeatureExtractor,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """`encode` makes states [1, positions, H] of features [1, mels, frames]."""
        self.extractor = extractor
        self._encode = encode
        self._dtype = dtype
        self._device = device
        self._states: WeakKeyDictionary[Recording, Tensor] = WeakKeyDictionary()

    @property
    def num_bytes(self) -> int:
        """Bytes held."""
        return sum(states.nbytes for states in self._states.values())

    @property
    def rate(self) -> int:
        """Samples a second that recordings must have."""
        return int(self.extractor.sampling_rate)

    @property
    def most_samples(self) -> int:
        """Samples of the longest recording that is heard at once."""
        return int(self.extractor.n_samples)

    def states(self, recording: Recording) -> Tensor:
        """Return what the encoder makes of a recording [1, positions, H]."""
        found = self._states.get(recording)
        if found is None:
            found = self._encode(self._features(recording))
            self._states[recording] = found
        return found

    def _features(self, recording: Recording) -> Tensor:
        extract: Any = self.extractor
        features: Tensor = extract(
            recording.samples.numpy(), sampling_rate=self.rate, return_tensors="pt"
        ).input_features
        return features.to(self._device, self._dtype)


def usual_extractor(config: PreTrainedConfig) -> WhisperFeatureExtractor:
    """Return what makes the features that a model with this configuration was made for."""
    build: Any = WhisperFeatureExtractor  # untyped
    usual, frames = build(), config.max_source_positions * STRIDE
    seconds = frames * usual.hop_length // usual.sampling_rate
    extractor: WhisperFeatureExtractor = build(
        feature_size=config.num_mel_bins, chunk_length=seconds
    )
    return extractor


def require_extractor(extractor: WhisperFeatureExtractor, config: PreTrainedConfig) -> None:
    """Raise UnsupportedModelError, with the numbers, for features that a model does not take."""
    found = (extractor.feature_size, extractor.nb_max_frames)
    wanted = (config.num_mel_bins, config.max_source_positions * STRIDE)
    if found != wanted:
        raise UnsupportedModelError(
            f"the feature extractor gives {found[0]} bins of {found[1]} frames; the encoder of the "
            f"model takes {wanted[0]} of {wanted[1]}"
        )


def same_features(one: WhisperFeatureExtractor, other: WhisperFeatureExtractor) -> bool:
    """Whether two extractors make the same features of a sound."""
    return all(getattr(one, name) == getattr(other, name) for name in _FEATURES)


def same_encoder(one: PreTrainedModel, other: PreTrainedModel) -> bool:
    """Whether two speech models have the same encoder, to the last bit of its weights."""
    configs: tuple[Any, Any] = (one.config, other.config)
    if any(getattr(configs[0], name) != getattr(configs[1], name) for name in _SETTINGS):
        return False
    ours, theirs = (model.get_encoder().state_dict() for model in (one, other))
    if ours.keys() != theirs.keys():
        return False
    return all(_same_bits(ours[name], theirs[name]) for name in ours)


def _same_bits(one: Tensor, other: Tensor) -> bool:
    if one.is_meta or other.is_meta:  # what is offloaded is not there to compare
        return False
    alike = one.shape == other.shape and one.dtype == other.dtype
    return alike and torch.equal(one, other.to(one.device))


def require_same_size(draft: PreTrainedConfig, target: PreTrainedConfig) -> None:
    """Raise OptionError, with the numbers, if a draft model cannot take its target's states."""
    sizes = [(config.max_source_positions, config.hidden_size) for config in (draft, target)]
    if sizes[0] != sizes[1]:
        (ours, width), (theirs, wide) = sizes
        raise OptionError(
            f"?encoder=shared: the draft model takes {ours} states of {width}, and the encoder of "
            f"the target gives {theirs} of {wide}"
        )
