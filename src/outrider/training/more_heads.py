"""A draft model with more attention heads than before: it says the same until they are trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from outrider.checkpoints.base import Checkpoint
from outrider.errors import OptionError
from outrider.heads.config import DraftConfig
from outrider.heads.draft import own_shapes, transformers_config
from outrider.targets.features import decoder_layers

_SPREAD = 0.02
_FAINT = 0.2
_ROWS, _COLUMNS = ("q_proj", "k_proj", "v_proj"), "o_proj"


@dataclass(frozen=True, slots=True)
class Heads:
    """How many attention heads a layer has, and how large they are."""

    queries: int
    keys: int
    size: int

    @classmethod
    def of(cls, config: DraftConfig) -> Heads:
        """Return the heads of a draft model."""
        found: Any = transformers_config(config)
        queries = found.num_attention_heads
        keys = getattr(found, "num_key_value_heads", None) or queries
        size = getattr(found, "head_dim", None) or found.hidden_size // queries
        return cls(queries, keys, size)

    def rows(self, projection: str) -> int:
        """Return how many numbers a projection of theirs has."""
        return self.size * (self.queries if projection in ("q_proj", _COLUMNS) else self.keys)


@torch.no_grad()
def with_more_heads(draft: Checkpoint, least: int, seed: int) -> Checkpoint:
    """Return a draft model that has at least `least` more query heads in each of its layers.

    The new ones are last, and write nothing yet. There are as few as the architecture takes. Raises
    OptionError for one that takes none.
    """
    assert isinstance(draft.config, DraftConfig)
    old = Heads.of(draft.config)
    each = old.queries // old.keys
    for groups in range(-(-least // each), old.keys + least + 1):
        new = Heads(old.queries + groups * each, old.keys + groups, old.size)
        if (config := _described(draft.config, new)) is not None:
            break
    else:
        kind = draft.config.architecture.get("model_type")
        raise OptionError(f"a draft model of the kind {kind} cannot have more attention heads")
    random = torch.Generator().manual_seed(seed)
    tensors = {name: _widened(name, part, old, new, random) for name, part in draft.tensors.items()}
    return replace(draft, config=config, tensors=tensors)


def _described(config: DraftConfig, heads: Heads) -> DraftConfig | None:
    """Return the configuration of a draft model with such heads, None if there is no such model."""
    sizes = {"num_attention_heads": heads.queries, "num_key_value_heads": heads.keys}
    architecture = dict(config.architecture) | sizes | {"head_dim": heads.size}
    wider = replace(config, architecture=architecture)
    try:
        shapes = own_shapes(wider)
    except OptionError:
        return None
    found = [shape for name, shape in shapes.items() if name.endswith(".q_proj.weight")]
    is_so = found and all(shape[0] == heads.rows("q_proj") for shape in found)
    return wider if is_so else None


def _widened(name: str, part: Tensor, old: Heads, new: Heads, random: torch.Generator) -> Tensor:
    projection = name.split(".")[-2] if "." in name else ""
    more = new.rows(projection) - old.rows(projection) if projection in (*_ROWS, _COLUMNS) else 0
    if not more:
        return part
    if projection == _COLUMNS:
        return part if part.dim() == 1 else torch.cat([part, part.new_zeros(len(part), more)], -1)
    if part.dim() == 1:
        return torch.cat([part, part.new_zeros(more)])
    rows = torch.randn(more, part.shape[1], generator=random) * _SPREAD
    return torch.cat([part, rows.to(part)])


class NewHeads:
    """The weights of the last heads of some layers, in a model that is trained."""

    def __init__(self, model: PreTrainedModel, old: Heads, layers: Sequence[int]) -> None:
        """`old` are the heads there were before; the new ones of other layers do not learn."""
        self.old = old
        found = decoder_layers(model)
        self._layers = {layer: _attention(found[layer]) for layer in layers}
        self.parameters: list[nn.Parameter] = []
        self._masks: list[Tensor] = []
        for attention in self._layers.values():
            for projection in (*_ROWS, _COLUMNS):
                self._add(getattr(attention, projection).weight, projection)

    def _add(self, weight: nn.Parameter, projection: str) -> None:
        mask = torch.zeros_like(weight)
        view = mask if projection != _COLUMNS else mask.T
        view[self.old.rows(projection) :] = 1
        self.parameters.append(weight)
        self._masks.append(mask)

    def weight(self, layer: int, projection: str) -> Tensor:
        """Return the new part of a projection: rows [N, H] of an input's, columns of the output's.

        It is a view: what is written there is in the model.
        """
        whole: Tensor = getattr(self._layers[layer], projection).weight.data
        first = self.old.rows(projection)
        return whole[:, first:] if projection == _COLUMNS else whole[first:]

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


def _attention(layer: nn.Module) -> nn.Module:
    for module in layer.modules():
        if all(isinstance(getattr(module, one, None), nn.Linear) for one in (*_ROWS, _COLUMNS)):
            return module
    raise OptionError("the attention of such draft models is not made of q, k, v and o")
