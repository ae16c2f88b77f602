"""Heads by our own operators for the CPU: a layer in one call, its products in whole numbers.

What a head gives is a little different afterwards, which costs guesses nothing to speak of. The
modules that are replaced, as they are, say what is to be computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from outrider.heads.eagle import EagleHead
from outrider.heads.layers import FusedLayer, Layer, RMSNorm
from outrider.heads.medusa import MedusaHeads
from outrider.heads.rotary import Rotary, Rotation
from outrider.targets.int8 import Int8Linear
from outrider.targets.kernels import load_drafting_kernels
from outrider.targets.kernels.layers import KernelLinear, WholeLinear, use_kernels

_ACTIVATIONS = ("silu", "swish")  # those of the operator
_ANGLES = 256  # positions are looked up in a table, which grows in steps of so many


class Stored(Protocol):
    """Attention that also shows where it stores keys and values: the operator does both itself."""

    places: Tensor
    """[R, 3]: the request, the row of its cache to store at, and how many from the first on each
    row sees."""
    branches: Tensor
    """[R, words]: which of the rows behind those each sees, as bits."""

    def room(
        self, layer: int, heads: int, width: int, like: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return keys and values [heads, T, width] of each request, with room for the pass."""
        ...


def run_by_kernels(head: EagleHead | MedusaHeads) -> None:
    """Put our operators in the place of a head's layers; the head computes in float32 then.

    Embeddings of its own keep their type. Raises CompilerError where the kernels cannot be built.
    """
    for name, child in head.named_children():
        if name != "embed_tokens":
            child.float()
    if isinstance(head, MedusaHeads):
        use_kernels(head, WholeLinear)
    elif head.config.hidden_act in _ACTIVATIONS:
        _replace_layers(head)
    else:
        use_kernels(head)


def _replace_layers(head: Any) -> None:
    """Replace modules of an EAGLE head by others that do the same."""
    load_drafting_kernels()
    for i, layer in enumerate(head.layers):
        head.layers[i] = KernelBlock(layer, *_norms_before(layer))
    if head.lm_head is not None:
        head.lm_head = WholeLinear(head.lm_head)
    head.rotary = KernelRotary(head.rotary)
    for name in ("norm", "input_norm"):
        if (norm := getattr(head, name)) is not None:
            setattr(head, name, KernelNorm(norm))
    if head.fc_norm is not None:
        head.fc_norm = nn.ModuleList(map(KernelNorm, head.fc_norm))
    # States of a target have single values far above all others, which would drown in eight bits.
    head.fc = KernelLinear(head.fc)


def _norms_before(layer: Layer | FusedLayer) -> list[RMSNorm]:
    """Return the norms of what enters a layer's attention: none for one that reads it as it is."""
    if isinstance(layer, FusedLayer):
        return [layer.input_layernorm, layer.hidden_norm]
    return [layer.input_layernorm] if isinstance(layer.input_layernorm, RMSNorm) else []


def find_leading(keys: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the `count` highest keys of each row [R, D], their columns and chances (`Finder`).

    Of equal keys the first columns are found.
    """
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.outrider.leading(
        keys.float().contiguous(), count
    )
    return found


def lent_layer(layer: nn.Module, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Return a target's output layer as a drafter's: in eight bits, a copy unless it is so already.

    One that is no plain layer is left as it is, and given rows of `dtype`, the target's.
    """
    if type(layer) is nn.Linear or isinstance(layer, Int8Linear):
        return WholeLinear(layer)
    return lambda rows: layer(rows.to(dtype))


class KernelNorm(nn.Module):
    """`RMSNorm` by our operator, over one tensor or several side by side."""

    def __init__(self, *norms: RMSNorm) -> None:
        super().__init__()
        load_drafting_kernels()
        self.weights = nn.ParameterList(norm.weight for norm in norms)
        self._weights = [norm.weight.detach() for norm in norms]
        self._epsilon = norms[0].epsilon

    def forward(self, *hidden: Tensor) -> Tensor:
        """Return the rows [R, n * width], each of the n tensors of unit mean square by itself."""
        rows = [one.contiguous() for one in hidden]
        y: Tensor = torch.ops.outrider.normed(rows, self._weights, self._epsilon)
        return y


class KernelBlock(nn.Module):
    """A decoder layer, with the norms before its attention."""

    def __init__(self, layer: Layer | FusedLayer, *norms: RMSNorm) -> None:
        super().__init__()
        attention, mlp, norm = layer.self_attn, layer.mlp, layer.post_attention_layernorm
        products = (
            WholeLinear(attention.q_proj, attention.k_proj, attention.v_proj),
            WholeLinear(attention.o_proj),
            WholeLinear(mlp.gate_proj, mlp.up_proj),
            WholeLinear(mlp.down_proj),
        )
        self.products = nn.ModuleList(products)
        self.norm, self.norms = norm, nn.ModuleList(norms)
        self._parts = [part for product in products for part in product.parts]
        self._norm, self._epsilon = norm.weight.detach(), norm.epsilon
        self._norms = [one.weight.detach() for one in norms]
        self._is_normed = isinstance(layer, FusedLayer) and layer.norm_before_residual
        self._layer = attention.layer
        self._width = attention.head_dim
        self._heads = attention.k_proj.out_features // attention.head_dim

    def forward(self, *args: Tensor | Turns | Stored) -> Tensor:
        """Return the hidden states [R, H] after the layer, from those before it.

        Arguments are those of `Layer` or `FusedLayer`: what enters attention, the last of which
        also goes past it, then turns and attention.
        """
        *given, turns, attend = cast("tuple[Any, ...]", args)
        rows = [one.contiguous() for one in given]
        keys, values = attend.room(self._layer, self._heads, self._width, rows[-1])
        after: Tensor = torch.ops.outrider.draft_layer(
            rows,
            self._norms,
            self._is_normed,
            self._parts,
            self._norm,
            self._epsilon,
            turns.cosine,
            turns.sine,
            turns.lines,
            keys,
            values,
            attend.places,
            attend.branches,
        )
        return after


@dataclass(frozen=True, slots=True)
class Turns:
    """How far rows are turned: `lines` [R] of the tables `cosine` and `sine` [T, 1, width]."""

    cosine: Tensor
    sine: Tensor
    lines: Tensor


class KernelRotary(nn.Module):
    """`Rotary`, looked up: what it gives at each position up to the furthest seen is kept."""

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.rotary = rotary
        self._kept: Rotation | None = None

    def forward(self, positions: Tensor, like: Tensor) -> Turns:
        """Return how far rows at the positions [R] are turned."""
        if self.rotary.moves:
            moved: Rotation = self.rotary(positions, like)
            lines = torch.arange(len(positions))
            return Turns(moved.cosine.contiguous(), moved.sine.contiguous(), lines)
        furthest = int(positions.max())
        if self._kept is None or furthest >= len(self._kept.cosine):
            end = (furthest // _ANGLES + 1) * _ANGLES
            table: Rotation = self.rotary(torch.arange(end), like)
            self._kept = Rotation(table.cosine.contiguous(), table.sine.contiguous())
        return Turns(self._kept.cosine, self._kept.sine, positions)
