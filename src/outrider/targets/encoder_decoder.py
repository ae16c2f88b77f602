"""An encoder-decoder as a target: T5, BART, Marian and their kin.

The encoder reads a sequence's input once; the keys and values its decoder makes of that are kept
with the sequence. The text is then decoded as that of any other model.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch
from transformers import PreTrainedModel

from outrider.errors import PromptError, UnsupportedModelError
from outrider.targets.eager import EagerPasses, FixedPasses
from outrider.targets.early_exit import EarlyExit
from outrider.targets.encoded import EncodedInputs
from outrider.targets.encoder_call import EncoderDecoderCall
from outrider.targets.passes import Passes
from outrider.targets.transformers import TransformersTarget
from outrider.types import EncoderInput, Numerics, Recording

_LOGGER = logging.getLogger("outrider")

_TRIAL_INPUT = 32  # tokens


class EncoderDecoderTarget(TransformersTarget):
    """Drives an encoder-decoder whose decoder's attention goes through Transformers' interface.

    Passes are eager. `prompt_ids` are what each text begins with: the id that the decoder starts
    from, and the one that the model's generation config wants to come first, if any.
    """

    reads_input = True
    scores_prompts = False  # they are no text of the decoder's
    is_encoder_decoder = True

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        numerics: Numerics = "fast",
        compile: bool | None = False,
    ) -> None:
        self._inputs = EncodedInputs()
        self.max_input: int | None = getattr(model.config, "max_position_embeddings", None)
        # One table of ids for inputs and texts, unless the model says otherwise.
        self.shares_input_ids = getattr(model.config, "share_encoder_decoder_embeddings", True)
        super().__init__(model, numerics=numerics, compile=compile)
        self.prompt_ids = start_ids(model)

    def _eager_passes(self) -> Passes:
        kind = FixedPasses if self.numerics == "invariant" else EagerPasses
        self._call = EncoderDecoderCall(self.model, self._inputs, kind.bucket)
        if self.numerics == "invariant":
            return FixedPasses(self.model, self._cache, self.device, self, call=self._call)
        return EagerPasses(self.model, self._cache, self.device, call=self._call)

    def _use_compiled(self, *, must: bool) -> bool:
        if must:
            _LOGGER.warning("passes run eagerly: encoder-decoder models are not compiled")
        return False

    def prepare(self, layers: Sequence[int]) -> None:
        if layers:
            name = type(self.model).__name__
            raise UnsupportedModelError(f"{name} is an encoder-decoder model: it has no heads")

    def exit_at(self, layer: int) -> EarlyExit:
        name = type(self.model).__name__
        raise UnsupportedModelError(f"{name} is an encoder-decoder model: it has no early exit")

    # -- inputs ---------------------------------------------------------------------------------

    def check_input(self, given: EncoderInput) -> None:
        if isinstance(given, Recording):
            raise PromptError(f"{type(self.model).__name__} reads text, and a recording is given")
        if not given:
            raise PromptError("the input is empty: there is nothing for the encoder to read")
        if self.max_input is not None and len(given) > self.max_input:
            raise PromptError(
                f"the input has {len(given)} tokens; the encoder reads {self.max_input}"
            )
        size = self._input_vocabulary
        for token in given:
            if not 0 <= token < size:
                raise PromptError(f"input id {token} is outside the vocabulary 0..{size - 1}")

    @property
    def _input_vocabulary(self) -> int:
        encoder: Any = self.model.get_encoder()
        return int(encoder.get_input_embeddings().num_embeddings)

    def read(self, sequence: int, given: EncoderInput) -> float:
        self.check_input(given)
        state = self._sequences[sequence]
        if state.cached:
            raise ValueError(f"sequence {sequence} has {state.cached} tokens of text already")
        started = perf_counter()
        self._call.keep(state.slot, self._encode(given))
        return perf_counter() - started

    def _encode(self, given: EncoderInput) -> torch.Tensor:
        """Return the states [1, positions, H] that the encoder makes of an input."""
        assert not isinstance(given, Recording)
        return self._call.encode(torch.tensor([given], device=self.device))

    def open_trial(self, max_tokens: int) -> int:
        sequence = self.open(max_tokens)
        self.read(sequence, self._trial_ids(min(_TRIAL_INPUT, self.max_input or _TRIAL_INPUT)))
        return sequence

    def _trial_ids(self, count: int) -> tuple[int, ...]:
        return tuple(token % self._input_vocabulary for token in range(5, 5 + count))

    # -- the contract ---------------------------------------------------------------------------

    def open(self, max_tokens: int) -> int:
        handle = super().open(max_tokens)
        self._inputs.add()
        return handle

    def close(self, sequence: int) -> None:
        slot = self._sequences[sequence].slot
        super().close(sequence)
        self._inputs.move_last(slot)

    @property
    def cache_bytes(self) -> int:
        return super().cache_bytes + self._inputs.num_bytes

    def _input_bytes(self, sequences: int, input_tokens: int) -> int:
        """Return the bytes that so many inputs, each of at most so many tokens, still need."""
        slots, length = self._inputs.size_for(sequences, input_tokens)
        return slots * length * self._inputs.bytes_per_token - self._inputs.num_bytes

    def _own_logits(self, tokens: torch.Tensor) -> torch.Tensor:
        trial = torch.tensor([self._trial_ids(_TRIAL_INPUT)[: self.max_input]], device=self.device)
        logits: torch.Tensor = self.model(
            input_ids=trial, decoder_input_ids=tokens, use_cache=False
        ).logits
        return logits


def start_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """Return what every text of an encoder-decoder begins with.

    Raises UnsupportedModelError if neither its generation config nor its config says.
    """
    generation: Any = model.generation_config
    found = [getattr(place, "decoder_start_token_id", None) for place in (generation, model.config)]
    found += [getattr(place, "bos_token_id", None) for place in (generation, model.config)]
    start = next((token for token in found if token is not None), None)
    if not isinstance(start, int):
        name = type(model).__name__
        raise UnsupportedModelError(
            f"{name} names no one token that its texts start from (decoder_start_token_id)"
        )
    forced = getattr(generation, "forced_bos_token_id", None)
    return (start,) if forced is None else (start, forced)
