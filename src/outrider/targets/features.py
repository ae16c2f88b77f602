"""Hidden states of a model, taken from the pass that makes its logits anyway.

A Transformers decoder is a list of layers in a base model; what enters layer i, what leaves the
last one, and what the base model returns (normed, for the language-model head) are the features
that drafters read. They are picked up by hooks that live as long as a pass does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from outrider.errors import OptionError, UnsupportedModelError
from outrider.targets.base import NORMED


def base_model(model: PreTrainedModel) -> nn.Module:
    """Return the part of a model that gives the states its language-model head reads."""
    get_decoder: Any = getattr(model, "get_decoder", None)
    base = get_decoder() if get_decoder is not None else model.base_model
    if not isinstance(base, nn.Module) or base is model:
        raise UnsupportedModelError(f"{type(model).__name__} has no base model of its own")
    return base


def layers_name(model: PreTrainedModel) -> str:
    """Return the name under which the base model keeps its list of layers."""
    count = model.config.get_text_config(decoder=True).num_hidden_layers
    for name, child in base_model(model).named_children():
        if isinstance(child, nn.ModuleList) and len(child) == count:
            return name
    raise UnsupportedModelError(f"{type(model).__name__} keeps its {count} layers in no one list")


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """Return the layers of a model, in the order in which they run."""
    layers = getattr(base_model(model), layers_name(model))
    assert isinstance(layers, nn.ModuleList)
    return layers


class FeatureTap:
    """Takes the states of some layers out of one pass after the other."""

    def __init__(self, model: PreTrainedModel, layers: Sequence[int]) -> None:
        """Raises OptionError for a layer that is not there, UnsupportedModelError for a model
        whose layers cannot be told apart.
        """
        self.layers = tuple(layers)
        self.base = base_model(model)
        self._layers = decoder_layers(model)
        self._states: dict[int, Tensor] = {}
        for layer in self.layers:
            if not (layer == NORMED or 0 <= layer <= len(self._layers)):
                raise OptionError(
                    f"hidden states of layer {layer} are asked for; {type(model).__name__} has "
                    f"layers 0 to {len(self._layers)}"
                )

    @contextmanager
    def on(self) -> Iterator[None]:
        """Take the states of the pass that the body runs; `states` gives them afterwards."""
        self._states = {}
        with ExitStack() as stack:
            for layer in set(self.layers):
                stack.enter_context(self._hook(layer))
            yield

    def states(self) -> list[Tensor]:
        """Return the states [B, W, H] of the last pass, in the order of `layers`; once."""
        states, self._states = self._states, {}
        try:
            return [states[layer] for layer in self.layers]
        except KeyError as error:
            raise UnsupportedModelError(f"the model skips its layer {error}") from None

    @contextmanager
    def _hook(self, layer: int) -> Iterator[None]:
        def keep_input(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._states[layer] = args[0] if args else kwargs["hidden_states"]

        def keep_output(_: nn.Module, args: object, output: Any) -> None:
            self._states[layer] = output if isinstance(output, Tensor) else output[0]

        if layer == NORMED:
            handle = self.base.register_forward_hook(keep_output)
        elif layer == len(self._layers):
            handle = self._layers[-1].register_forward_hook(keep_output)
        else:
            handle = self._layers[layer].register_forward_pre_hook(keep_input, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()


def side_by_side(states: Sequence[Tensor]) -> Tensor:
    """Return states [..., H] of some layers as one tensor [..., layers * H]."""
    return (
        states[0] if len(states) == 1 else torch.cat([s.to(states[0].device) for s in states], -1)
    )
