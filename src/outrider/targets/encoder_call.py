"""How an encoder-decoder is called: its encoder on an input, its decoder on the rows of a pass."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from outrider.errors import UnsupportedModelError
from outrider.targets.attention import AttentionSwitch
from outrider.targets.cache import KVCache, Placement
from outrider.targets.calling import ModelCall
from outrider.targets.cross_attention import (
    IMPLEMENTATION,
    DecoderPlan,
    FindingCross,
    ReadingPlan,
    decoder_attention,
)
from outrider.targets.encoded import EncodedInputs
from outrider.targets.padded import Branches, PaddedPlan
from outrider.targets.pass_cache import PassCache
from outrider.targets.relative_bias import RelativeBias


class EncoderDecoderCall(ModelCall):
    """An encoder-decoder, whose passes are those of its decoder."""

    def __init__(self, model: PreTrainedModel, inputs: EncodedInputs, granule: int) -> None:
        """Inputs are kept in `inputs`, and read in multiples of `granule` tokens.

        Raises UnsupportedModelError for a decoder that looks at no input.
        """
        self.model = model
        self.switch = AttentionSwitch(model, name=IMPLEMENTATION, attention=decoder_attention)
        self._inputs = inputs
        self._granule = granule
        parameters = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        parts: Any = model  # untyped there
        self._encoder: nn.Module = parts.get_encoder()
        self._decoder: nn.Module = parts.get_decoder()
        self._relative = RelativeBias.of(self._decoder)
        self._cross = self._find_cross()

    @torch.inference_mode()
    def encode(self, inputs: Tensor) -> Tensor:
        """Return the states [1, positions, H] that the encoder gives, by attention of its own.

        `inputs` are what it takes first: ids [1, tokens], or features.
        """
        with self.switch.off():
            states: Tensor = self._encoder(inputs).last_hidden_state
        return states

    @torch.inference_mode()
    def keep(self, slot: int, states: Tensor) -> None:
        """Keep in a slot what cross-attention reads of an encoder's states [1, positions, H]."""
        self._inputs.begin(slot, states.shape[1])
        plan = ReadingPlan(self._inputs, slot)
        with self.switch.on():
            for module in self._cross:
                # Its queries go nowhere: one is the least that it takes.
                given = {_states_argument(module): states, "outrider_plan": plan}
                module(hidden_states=states[:, :1], **given)

    def plan(
        self,
        cache: KVCache,
        placement: Placement,
        bucket: int,
        positions: Tensor,
        branches: Sequence[Branches | None],
        *,
        tile: int,
        in_order: bool,
    ) -> DecoderPlan:
        slots = len(placement.starts)
        return DecoderPlan(
            cache,
            placement,
            bucket,
            positions,
            branches,
            tile=tile,
            in_order=in_order,
            inputs=self._inputs.stored(placement.first, slots, self._granule),
            cross=frozenset(self._cross),
            relative=self._relative,
        )

    def logits(
        self, input_ids: Tensor, position_ids: Tensor, plan: PaddedPlan, keep: int | None
    ) -> Tensor:
        assert isinstance(plan, DecoderPlan)
        # Whisper's decoder hands a cache on to its layers only where it is to be used.
        stored = {self._cache_name: PassCache(plan.inputs.layers), "use_cache": True}
        with self._at(position_ids):
            # No states of encoders: what cross-attention makes of them is stored.
            return self._run(input_ids, self._states(input_ids.shape[0], 0), plan, stored)

    def _run(
        self, input_ids: Tensor, states: Tensor, plan: object, options: dict[str, Any]
    ) -> Tensor:
        logits: Tensor = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            decoder_input_ids=input_ids,
            outrider_plan=plan,
            **options,
        ).logits
        return logits

    def _states(self, batch: int, tokens: int) -> Tensor:
        """Return states of nothing, in the shape of an encoder's."""
        size = self.model.config.hidden_size
        return torch.zeros(batch, tokens, size, dtype=self.model.dtype, device=self.model.device)

    @torch.inference_mode()
    def _find_cross(self) -> list[nn.Module]:
        finding = FindingCross()
        two_rows = torch.zeros(1, 2, dtype=torch.long, device=self.model.device)
        name = type(self.model).__name__
        try:
            with self.switch.on():
                self._run(two_rows, self._states(1, 3), finding, {"use_cache": False})
        except (TypeError, ValueError, RuntimeError, KeyError, AttributeError) as error:
            raise UnsupportedModelError(f"{name} cannot be driven: {error}") from error
        if not finding.found:
            raise UnsupportedModelError(
                f"{name} does not declare Transformers' attention interface for its input"
            )
        return finding.found

    @contextmanager
    def _at(self, positions: Tensor) -> Iterator[None]:
        """Let the decoder, if it embeds positions, take these [B, W] for its rows'.

        By itself it numbers the rows of all sequences alike, from those it has cached on.
        """
        embeddings: nn.Module | None = getattr(self._decoder, "embed_positions", None)
        if embeddings is None:
            yield
            return
        takes = "position_ids" in inspect.signature(embeddings.forward).parameters
        hooks = _told(embeddings, positions) if takes else _replaced(embeddings, positions)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _told(embeddings: nn.Module, positions: Tensor) -> tuple[RemovableHandle, ...]:
    """Tell positions [B, W] to a module that takes them, for one sequence."""

    def before(
        _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs | {"position_ids": positions.reshape(-1)}

    def after(_: nn.Module, args: object, embedded: Tensor) -> Tensor:
        return embedded.reshape(*positions.shape, -1)

    return (
        embeddings.register_forward_pre_hook(before, with_kwargs=True),
        embeddings.register_forward_hook(after),
    )


def _replaced(embeddings: nn.Module, positions: Tensor) -> tuple[RemovableHandle, ...]:
    """Look positions [B, W] up in the table of a module that counts them by itself: M2M100's.

    There they begin behind that of padding, and padding stays where it is.
    """
    table: Any = embeddings

    def after(_: nn.Module, args: tuple[Any, ...], __: Tensor) -> Tensor:
        padding = table.padding_idx
        rows = torch.where(args[0] == padding, padding, positions + padding + 1)
        found: Tensor = table.weights[rows]
        return found

    return (embeddings.register_forward_hook(after),)


def _states_argument(module: nn.Module) -> str:
    """Return the name by which a cross-attention takes the encoder's states."""
    parameters = inspect.signature(module.forward).parameters
    return "key_value_states" if "key_value_states" in parameters else "encoder_hidden_states"
