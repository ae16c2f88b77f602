"""Some layers of a model, run by the model's own forward: the others let states pass through.

Embeddings, positions, masks, the final norm and the language-model head stay the model's business,
so that a range of layers needs to know nothing of an architecture but its list of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from outrider.errors import UnsupportedModelError
from outrider.targets.features import decoder_layers
from outrider.targets.offload import execution_device

_FORWARD = "forward"


class LayerRange:
    """The layers `first` to `last` of a model, counted from 0, `last` not among them."""

    def __init__(self, model: PreTrainedModel, first: int, last: int) -> None:
        """Raises UnsupportedModelError for a model whose layers cannot be told apart."""
        self._layers = decoder_layers(model)
        if not 0 <= first < last <= len(self._layers):
            raise ValueError(f"layers {first} to {last} of {len(self._layers)}")
        self.first = first
        self.last = last
        # How many values each layer gives: some give the states alone, some a tuple of more.
        self._widths = _widths(model, self._layers)

    def __repr__(self) -> str:
        return f"layers {self.first} to {self.last - 1}"

    @contextmanager
    def on(self, entering: Tensor | None = None) -> Iterator[None]:
        """Run the body with these layers alone; the others come back whatever happens.

        `entering` [B, W, H] is what enters the first of them, if that is not the model's first.
        Nobody else may run the model meanwhile: enter it under `AttentionSwitch.on`.
        """
        if (entering is None) != (self.first == 0):
            raise ValueError(f"states are given to {self}: {entering is not None}")
        before = [vars(layer).get(_FORWARD) for layer in self._layers]
        try:
            for index, layer in enumerate(self._layers):
                if not self.first <= index < self.last:
                    given = entering if index == self.first - 1 else None
                    # The layer itself stays in its place, for models that look at its attributes.
                    vars(layer)[_FORWARD] = _pass_through(self._widths[index], given)
            yield
        finally:
            for layer, own in zip(self._layers, before, strict=True):
                if own is None:
                    vars(layer).pop(_FORWARD, None)
                else:
                    vars(layer)[_FORWARD] = own


def _pass_through(width: int | None, given: Tensor | None) -> Callable[..., Any]:
    """Return a layer's forward that gives the states it is given, or those `given` here."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        states = args[0] if args else kwargs["hidden_states"]
        if given is not None:
            states = given
        return states if width is None else (states, *[None] * (width - 1))

    return forward


@torch.inference_mode()
def _widths(model: PreTrainedModel, layers: nn.ModuleList) -> list[int | None]:
    """Return how many values the tuple has that each layer gives, None if it is no tuple."""
    found: list[int | None] = []

    def look(_: nn.Module, args: object, output: object) -> None:
        found.append(len(output) if isinstance(output, tuple) else None)

    handles = [layer.register_forward_hook(look) for layer in layers]
    try:
        model(input_ids=torch.tensor([[0]], device=execution_device(model)), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    if len(found) != len(layers):
        raise UnsupportedModelError(
            f"{type(model).__name__} runs {len(found)} layers of the {len(layers)} it has: "
            "some of them alone cannot be run"
        )
    return found
