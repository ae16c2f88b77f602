"""The weights of attention heads that a model was given, in a model that is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from outrider.errors import OptionError
from outrider.training.copying.more_heads import COLUMNS, ROWS, Heads

_FAINT = 0.2
_SLOW, _FAR = 0.5, 512  # radians that a place which compares tokens turns in so many tokens


class NewHeads:
    """The weights of the last heads of some layers, in a model that is trained."""

    def __init__(self, model: nn.Module, layers: Mapping[int, nn.Module], old: Heads) -> None:
        """`old` are the heads there were before; the new ones of layers not named do not learn.

        Raises OptionError for layers whose attention is made of other parts than q, k, v and o.
        """
        self.model = model
        self.old = old
        self._layers = {place: _attention(layer) for place, layer in layers.items()}
        self.parameters: list[nn.Parameter] = []
        self._masks: list[Tensor] = []
        for attention in self._layers.values():
            for projection in (*ROWS, COLUMNS):
                self._add(getattr(attention, projection).weight, projection)

    def _add(self, weight: nn.Parameter, projection: str) -> None:
        mask = torch.zeros_like(weight)
        view = mask if projection != COLUMNS else mask.T
        view[self.old.rows(projection) :] = 1
        self.parameters.append(weight)
        self._masks.append(mask)

    def weight(self, layer: int, projection: str) -> Tensor:
        """Return the new part of a projection: rows [N, H] of an input's, columns of the output's.

        It is a view: what is written there is in the model.
        """
        whole: Tensor = getattr(self._layers[layer], projection).weight.data
        first = self.old.rows(projection)
        return whole[:, first:] if projection == COLUMNS else whole[first:]

    def projection(self, layer: int, projection: str) -> nn.Linear:
        """Return a projection of a layer as a whole."""
        found: nn.Linear = getattr(self._layers[layer], projection)
        return found

    def put(self, layer: int, projection: str, rows: Tensor, places: Sequence[int] = ()) -> None:
        """Write rows [N, H] into a projection of every new head, at its first N places or these.

        Where only some places are named, the others are made small.
        """
        size = self.old.size
        where = list(places) or list(range(len(rows)))
        for head in torch.split(self.weight(layer, projection), size):
            if places:
                head *= _FAINT
            head[where] = rows

    def keep_gradients(self) -> None:
        """Leave no gradient but that of the new heads."""
        for parameter, mask in zip(self.parameters, self._masks, strict=True):
            if parameter.grad is not None:
                parameter.grad *= mask


def slow_places(rotary: nn.Module | None, size: int) -> list[int]:
    """Return the places of a head that rotary positions hardly turn: they compare from afar.

    A quarter of them at least, slow or not, the slowest last; all where nothing turns.
    """
    frequencies = getattr(rotary, "inv_freq", None)
    if frequencies is None:
        return list(range(size))
    pairs = len(frequencies)
    slow = sum(1 for one in frequencies.tolist() if one * _FAR < _SLOW)
    first = pairs - max(slow, -(-pairs // 4))
    return [place for pair in range(first, pairs) for place in (pair, pairs + pair)]


def _attention(layer: nn.Module) -> nn.Module:
    for module in layer.modules():
        if all(isinstance(getattr(module, one, None), nn.Linear) for one in (*ROWS, COLUMNS)):
            return module
    raise OptionError("the attention of such draft models is not made of q, k, v and o")
