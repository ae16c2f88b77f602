"""The attention of an encoder-decoder's decoder, plugged into Transformers' interface.

Self-attention is that of any decoder, over outrider's cache, with biases of distance where the
model has them. Cross-attention reads the keys and values of the input, which were stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor, nn
from torch.nn import functional

from outrider.errors import UnsupportedModelError
from outrider.targets.attention import layer_number, refuse_unknown
from outrider.targets.cache import KVCache, Placement
from outrider.targets.encoded import EncodedInputs, StoredInputs
from outrider.targets.padded import Branches, PaddedPlan, folded_attention
from outrider.targets.relative_bias import RelativeBias

IMPLEMENTATION = "outrider-encoder-decoder"


class Mixing(Protocol):
    """What becomes of the queries, keys and values of a decoder's attention."""

    def mix(
        self,
        module: nn.Module,
        query: Tensor,  # [B, heads, W, width]
        key: Tensor,  # [B, heads, W or input, width]
        value: Tensor,
        scale: float,
    ) -> Tensor:
        """Return the mixed values [B, W, heads, width]."""
        ...


def decoder_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    outrider_plan: Mixing | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Let the plan of the pass attend, in the form Transformers' functions have.

    The `position_bias` that the model works out knows nothing of where rows stand: the plan has
    its own.
    """
    refuse_unknown(module, attention_mask, dropout, outrider_plan, others)
    assert outrider_plan is not None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return outrider_plan.mix(module, query, key, value, scale), None


class FindingCross:
    """Finds out which attentions of a decoder look at the input, by the keys they come with."""

    def __init__(self) -> None:
        self.found: list[nn.Module] = []

    def mix(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Take note of a module with other keys than its queries' own."""
        if key.shape[2] != query.shape[2]:
            self.found.append(module)
        return _nothing(query, value)


class ReadingPlan:
    """Stores the keys and values that cross-attention makes of an encoder's states."""

    def __init__(self, inputs: EncodedInputs, slot: int) -> None:
        self._inputs = inputs
        self._slot = slot

    def mix(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Store a layer's."""
        self._inputs.write(self._slot, layer_number(module), key, value)
        return _nothing(query, value)


class DecoderPlan(PaddedPlan):
    """Storage and visibility of a pass of B sequences, W rows each, with an input each."""

    def __init__(
        self,
        cache: KVCache,
        placement: Placement,
        bucket: int,
        positions: Tensor,  # [B, W]
        branches: Sequence[Branches | None],
        *,
        tile: int,
        in_order: bool,
        inputs: StoredInputs,
        cross: frozenset[nn.Module],
        relative: RelativeBias | None,
    ) -> None:
        """`cross` are the attentions that look at the `inputs`; the rest is as for `PaddedPlan`."""
        super().__init__(
            cache, placement, bucket, positions, branches, tile=tile, in_order=in_order
        )
        self.inputs = inputs
        self._cross = cross
        self._relative = relative
        self._layer_biases: dict[tuple[object, ...], Tensor] = {}

    def mix(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Attend to the text before each row, or to the input."""
        if module in self._cross:
            return self._look(query, key, value, scale)
        return self.attend(
            layer_number(module), query, key, value, scale=scale, window=None, softcap=None
        )

    def _look(self, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Attend to all of the input."""
        if keys.shape[1] != query.shape[1]:
            raise UnsupportedModelError("cross-attention with fewer heads of keys is not known")
        query = functional.pad(query, (0, 0, 0, self.fill)) if self.fill else query
        bias = self.inputs.bias(query).expand(-1, -1, query.shape[2], -1)
        mixed = folded_attention(query, keys, values, bias, scale, None)
        return mixed[:, :, : self.placement.width].transpose(1, 2).contiguous()

    def layer_bias(self, layer: int, window: int | None, groups: int, like: Tensor) -> Tensor:
        """Return the mask, and where the model has biases of distance, those of the layer.

        [B, 1 or heads, W + fill, bucket].
        """
        if self._relative is None:
            return self.bias(window, groups, like)
        key = (self._relative.table_layer(layer), like.device, like.dtype)
        if key not in self._layer_biases:
            added = self._relative.at(layer, self.distances(), like)
            added = functional.pad(added, (0, 0, 0, self.fill))
            self._layer_biases[key] = self.bias(window, groups, like) + added
        return self._layer_biases[key]


def _nothing(query: Tensor, value: Tensor) -> Tensor:
    batch, heads, width, _ = query.shape
    return value.new_zeros(batch, width, heads, value.shape[-1])
