"""Rotary position embedding of rows, with the frequencies Transformers gives a Llama model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from outrider.errors import UnsupportedModelError
from outrider.heads.config import EagleConfig

_MOVING = ("dynamic", "longrope")
"""Types that take their frequencies from the longest position of a pass."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """How far each row's queries and keys are turned; `cosine` and `sine` are [R, 1, width]."""

    cosine: Tensor
    sine: Tensor

    def apply(self, heads: Tensor) -> Tensor:
        """Return queries or keys [R, heads, width] turned by their rows' positions."""
        first, second = heads.chunk(2, dim=-1)
        return heads * self.cosine + torch.cat((-second, first), dim=-1) * self.sine


class Rotary(nn.Module):
    """Gives the rotation of each row from its position (Su et al., 2104.09864).

    Types that change with the length take it from the longest position of the pass, as Transformers
    does. Raises UnsupportedModelError for a type Transformers does not know,
    parameters it misses, or a partial rotation.
    """

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        _check(config)
        # Frequencies are computed here and never loaded, so they need a device even where the
        # weights have none yet.
        with torch.device("cpu"):
            self.embedding = _embedding(config)
        self.moves = _kind(config) in _MOVING
        """Whether the rotation at a position also depends on the others of a pass."""

    def forward(self, positions: Tensor, like: Tensor) -> Rotation:
        """Return the rotation at the positions [R], in the type of the tensor it is for."""
        cosine, sine = self.embedding(like, positions[None])
        return Rotation(cosine[0, :, None], sine[0, :, None])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotary:
        """Follow the head to another device, but not to another type: angles need float32."""
        exact = dict(self.embedding.named_buffers())
        follow: Any = super()._apply  # untyped
        follow(fn, recurse)
        for name, moved in self.embedding.named_buffers():
            setattr(self.embedding, name, exact[name].to(moved.device))
        return self


def _kind(config: EagleConfig) -> str:
    kind: str = config.rope_parameters.get("rope_type", "default")
    return kind


def _check(config: EagleConfig) -> None:
    kind = _kind(config)
    known = ("default", *ROPE_INIT_FUNCTIONS)
    if kind not in known:
        raise UnsupportedModelError(f"rope type {kind} is unknown; known are {', '.join(known)}")
    if config.rope_parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModelError("an EAGLE head that turns a part of each attention head only")
    if config.head_dim % 2:
        raise UnsupportedModelError(f"head_dim {config.head_dim} is odd: nothing to turn in pairs")


def _embedding(config: EagleConfig) -> LlamaRotaryEmbedding:
    """Build Transformers' embedding from the little of a Llama configuration it depends on."""
    try:
        return LlamaRotaryEmbedding(
            LlamaConfig(
                hidden_size=config.num_attention_heads * config.head_dim,
                num_attention_heads=config.num_attention_heads,
                num_key_value_heads=config.num_key_value_heads,
                head_dim=config.head_dim,
                max_position_embeddings=config.max_position_embeddings,
                rope_parameters=dict(config.rope_parameters),
            )
        )
    except KeyError as error:
        raise UnsupportedModelError(f"rope parameters of an EAGLE head: {error.args[0]}") from error
