"""A speech model as a target: Whisper, whose encoder hears a recording of one window.

The text is decoded as that of any encoder-decoder, with keys and values of the whole window: what
is shorter is heard with the silence behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, WhisperFeatureExtractor
from transformers.modeling_outputs import BaseModelOutput

from outrider.errors import OptionError, PromptError
from outrider.targets.base import Rows
from outrider.targets.encoder_decoder import EncoderDecoderTarget
from outrider.targets.hearing import (
    Hearing,
    require_extractor,
    require_same_size,
    same_encoder,
    same_features,
    usual_extractor,
)
from outrider.targets.passes import Passes
from outrider.types import EncoderInput, Numerics, Recording


class SpeechTarget(EncoderDecoderTarget):
    """Drives a speech model; its inputs are recordings, at the rate of `hearing`."""

    reads_audio = True

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        extractor: WhisperFeatureExtractor | None = None,
        hearing: Hearing | None = None,
        numerics: Numerics = "fast",
        compile: bool | None = False,
    ) -> None:
        """`extractor` makes the features, the usual one if None.

        With another model's `hearing`, its encoder is used, and the model's own never runs.
        """
        config: Any = model.config
        self._extractor = usual_extractor(config) if extractor is None else extractor
        require_extractor(self._extractor, config)
        self._shared = hearing
        self._positions: int = config.max_source_positions
        super().__init__(model, numerics=numerics, compile=compile)
        self.shares_input_ids = False

    @classmethod
    def beside(
        cls,
        target: SpeechTarget,
        model: PreTrainedModel,
        extractor: WhisperFeatureExtractor | None,
        *,
        must_share: bool = False,
    ) -> SpeechTarget:
        """Return a draft model of a target as a target of its own.

        Where the encoder in its files is the target's, bit for bit, as that of a distilled decoder
        is, it hears by the target's, and its own is let go; so it is where it `must_share`.

        Raises OptionError if it must and cannot, and for recordings at another rate.
        """
        extractor = usual_extractor(model.config) if extractor is None else extractor
        ours = target.hearing.extractor
        if extractor.sampling_rate != ours.sampling_rate:
            raise OptionError(
                f"the draft model hears recordings of {extractor.sampling_rate} Hz; the target "
                f"hears {ours.sampling_rate}"
            )
        if must_share:
            require_same_size(model.config, target.model.config)
        same = same_features(extractor, ours) and same_encoder(model, target.model)
        if not (same or must_share):
            return cls(model, extractor=extractor)
        whole: Any = model
        whole.model.encoder = nn.Identity()
        return cls(model, extractor=extractor, hearing=target.hearing)

    def _eager_passes(self) -> Passes:
        passes = super()._eager_passes()
        self.hearing = self._shared or Hearing(
            self._call.encode, self._extractor, dtype=self.model.dtype, device=self.device
        )
        # What an encoder's last norm gives is of this size, whatever it heard.
        size = (1, self._positions, self.model.config.hidden_size)
        noise = torch.randn(size, generator=torch.Generator().manual_seed(0))
        self._trial_states = noise.to(self.device, self.model.dtype)
        return passes

    def check_input(self, given: EncoderInput) -> None:
        name = type(self.model).__name__
        if not isinstance(given, Recording):
            raise PromptError(f"{name} hears recordings: it reads no text")
        samples, most = len(given.samples), self.hearing.most_samples
        if not 0 < samples <= most:
            raise PromptError(f"the recording has {samples} samples; {name} hears 1 to {most}")

    def input_length(self, given: EncoderInput) -> int:
        return self._positions

    def detect_language(self, recording: Recording, languages: Sequence[int]) -> int:
        """Return which of some languages, by their ids, the model takes a recording to be in."""
        sequence = self.open(1)
        try:
            self.read(sequence, recording)
            (logits,) = self.score([Rows(sequence, self.prompt_ids[:1])]).logits
        finally:
            self.close(sequence)
        ids = sorted(languages)  # of equals the lowest, as everywhere
        scores = logits[0, torch.tensor(ids, device=logits.device)]
        return ids[int(scores.argmax())]

    def open_trial(self, max_tokens: int) -> int:
        sequence = self.open(max_tokens)
        self._call.keep(self._sequences[sequence].slot, self._trial_states)
        return sequence

    @property
    def cache_bytes(self) -> int:
        return super().cache_bytes + self.hearing.num_bytes

    def _input_bytes(self, sequences: int, input_tokens: int) -> int:
        states: int = sequences * input_tokens * self.model.config.hidden_size
        unheard = max(0, states * self.model.dtype.itemsize - self.hearing.num_bytes)
        return super()._input_bytes(sequences, input_tokens) + unheard

    def _encode(self, given: EncoderInput) -> torch.Tensor:
        assert isinstance(given, Recording)
        return self.hearing.states(given).to(self.device, self.model.dtype)

    def _own_logits(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self._trial_states),
            decoder_input_ids=tokens,
            use_cache=False,
        ).logits
        return logits
