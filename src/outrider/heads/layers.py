"""The decoder layers of an EAGLE head, over rows of any number of requests side by side.

They are Llama's, but for the first: it has no norm before its attention in EAGLE-1, and in
EAGLE-3 attends from the token embedding beside the hidden state.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from outrider.errors import UnsupportedModelError
from outrider.heads.config import EagleConfig
from outrider.heads.rotary import Rotation


class Attend(Protocol):
    """Attention as the caller keeps it: it stores keys and values, and knows who sees what."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the mixed values [R, heads * width].

        Given `query` [R, heads, width], `key` and `value` [R, key heads, width]; queries and keys
        are turned by their positions already. Scores are scaled by width ** -0.5.
        """
        ...


class RMSNorm(nn.Module):
    """Root mean square norm (Zhang & Sennrich, 1910.07467), computed in float32 or wider."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        """Return rows of unit mean square, times the weight."""
        wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        mean_square = wide.pow(2).mean(dim=-1, keepdim=True)
        unit = wide * torch.rsqrt(mean_square + self.epsilon)
        return self.weight * unit.to(hidden.dtype)


class Attention(nn.Module):
    """Projections around the caller's attention, reading rows of `width` values."""

    def __init__(self, config: EagleConfig, layer: int, width: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        bias = config.attention_bias
        self.q_proj = nn.Linear(width, queries, bias=bias)
        self.k_proj = nn.Linear(width, keys, bias=bias)
        self.v_proj = nn.Linear(width, keys, bias=bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=bias)

    def forward(self, rows: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        """Return what each row takes from the rows it may see, [R, H]."""
        heads = (-1, self.head_dim)
        query = rotation.apply(self.q_proj(rows).unflatten(-1, heads))
        key = rotation.apply(self.k_proj(rows).unflatten(-1, heads))
        value = self.v_proj(rows).unflatten(-1, heads)
        mixed: Tensor = self.o_proj(attend(self.layer, query, key, value))
        return mixed


class GatedMLP(nn.Module):
    """The gated feed-forward block of Llama."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        if config.hidden_act not in ACT2FN:
            raise UnsupportedModelError(f"an EAGLE head with activation {config.hidden_act}")
        outer, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(outer, inner, bias=bias)
        self.up_proj = nn.Linear(outer, inner, bias=bias)
        self.down_proj = nn.Linear(inner, outer, bias=bias)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, rows: Tensor) -> Tensor:
        """Return the rows [R, H] fed forward."""
        fed: Tensor = self.down_proj(self.activation(self.gate_proj(rows)) * self.up_proj(rows))
        return fed


class Layer(nn.Module):
    """A Llama decoder layer; `normed` says whether a norm stands before its attention."""

    def __init__(self, config: EagleConfig, layer: int, *, normed: bool = True) -> None:
        super().__init__()
        self.input_layernorm = _norm(config) if normed else nn.Identity()
        self.self_attn = Attention(config, layer, config.hidden_size)
        self.post_attention_layernorm = _norm(config)
        self.mlp = GatedMLP(config)

    def forward(self, hidden: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        """Return the hidden states [R, H] after the layer."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rotation, attend)
        after: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return after


class FusedLayer(nn.Module):
    """EAGLE-3's first layer: attention reads the embedding and the hidden state, both normed."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self.norm_before_residual = config.norm_before_residual
        self.input_layernorm = _norm(config)
        self.hidden_norm = _norm(config)
        self.self_attn = Attention(config, 0, 2 * config.hidden_size)
        self.post_attention_layernorm = _norm(config)
        self.mlp = GatedMLP(config)

    def forward(
        self, embeddings: Tensor, hidden: Tensor, rotation: Rotation, attend: Attend
    ) -> Tensor:
        """Return the hidden states [R, H] after the layer."""
        normed = self.hidden_norm(hidden)
        residual = normed if self.norm_before_residual else hidden
        both = torch.cat((self.input_layernorm(embeddings), normed), dim=-1)
        hidden = residual + self.self_attn(both, rotation, attend)
        after: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return after


def _norm(config: EagleConfig) -> RMSNorm:
    return RMSNorm(config.hidden_size, config.rms_norm_eps)
