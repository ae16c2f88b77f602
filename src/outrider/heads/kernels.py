"""Heads by our own operators for the CPU: a layer in one call, its products in whole numbers.

What a head gives is a little different afterwards, which costs guesses nothing to speak of. The
modules that are replaced, as they are, say what is to be computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

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
        head.layers[i] = KernelFused(layer) if isinstance(layer, FusedLayer) else KernelLayer(layer)
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


def lent_layer(layer: nn.Module, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Return a target's output layer as a drafter's: a copy in eight bits, which is less to read.

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
    """A decoder layer but for what enters its attention."""

    def __init__(self, layer: Layer | FusedLayer) -> None:
        super().__init__()
        attention, mlp, norm = layer.self_attn, layer.mlp, layer.post_attention_layernorm
        products = (
            WholeLinear(attention.q_proj, attention.k_proj, attention.v_proj),
            WholeLinear(attention.o_proj),
            WholeLinear(mlp.gate_proj, mlp.up_proj),
            WholeLinear(mlp.down_proj),
        )
        self.products = nn.ModuleList(products)
        self.norm = norm
        self._parts = [part for product in products for part in product.parts]
        self._norm, self._epsilon = norm.weight.detach(), norm.epsilon
        self._layer = attention.layer
        self._width = attention.head_dim
        self._heads = attention.k_proj.out_features // attention.head_dim

    def forward(
        self, entering: Tensor, residual: Tensor, rotation: Rotation, attend: Stored
    ) -> Tensor:
        """Return the hidden states [R, H], from what enters attention [R, W] and goes past it."""
        keys, values = attend.room(self._layer, self._heads, self._width, residual)
        after: Tensor = torch.ops.outrider.draft_layer(
            entering,
            residual,
            self._parts,
            self._norm,
            self._epsilon,
            rotation.cosine,
            rotation.sine,
            keys,
            values,
            attend.places,
            attend.branches,
        )
        return after


class KernelLayer(nn.Module):
    """`Layer` by our operators."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        norm = layer.input_layernorm
        self.norm = KernelNorm(norm) if isinstance(norm, RMSNorm) else norm
        self.block = KernelBlock(layer)

    def forward(self, hidden: Tensor, rotation: Rotation, attend: Stored) -> Tensor:
        """Return the hidden states [R, H] after the layer."""
        hidden = hidden.contiguous()
        after: Tensor = self.block(self.norm(hidden), hidden, rotation, attend)
        return after


class KernelFused(nn.Module):
    """`FusedLayer` by our operators."""

    def __init__(self, layer: FusedLayer) -> None:
        super().__init__()
        self._norm_before_residual = layer.norm_before_residual
        self.norms = KernelNorm(layer.input_layernorm, layer.hidden_norm)
        self.block = KernelBlock(layer)

    def forward(
        self, embeddings: Tensor, hidden: Tensor, rotation: Rotation, attend: Stored
    ) -> Tensor:
        """Return the hidden states [R, H] after the layer."""
        both = self.norms(embeddings, hidden)
        residual = both[:, hidden.shape[1] :] if self._norm_before_residual else hidden
        after: Tensor = self.block(both, residual.contiguous(), rotation, attend)
        return after


class KernelRotary(nn.Module):
    """`Rotary`, looked up: what it gives at each position up to the furthest seen is kept."""

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.rotary = rotary
        self._kept: Rotation | None = None

    def forward(self, positions: Tensor, like: Tensor) -> Rotation:
        """Return the rotation at the positions [R]."""
        if self.rotary.moves:
            moved: Rotation = self.rotary(positions, like)
            return moved
        furthest = int(positions.max())
        if self._kept is None or furthest >= len(self._kept.cosine):
            end = (furthest // _ANGLES + 1) * _ANGLES
            self._kept = self.rotary(torch.arange(end), like)
        return Rotation(self._kept.cosine[positions], self._kept.sine[positions])
