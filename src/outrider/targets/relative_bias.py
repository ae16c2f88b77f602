"""Biases of distance: what T5's kin add to attention scores in place of positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class RelativeBias:
    """The biases of a decoder's self-attention, by layer, head, and distance between tokens.

    They are the model's own, asked for once: beyond `relative_attention_max_distance` all
    distances are alike to it.
    """

    def __init__(self, tables: dict[int, Tensor]) -> None:
        """`tables`: [heads, distances] for each layer that has one; others use the first's."""
        self._tables = tables

    @classmethod
    @torch.inference_mode()
    def of(cls, decoder: nn.Module) -> RelativeBias | None:
        """Return the biases of a decoder, None if it has none."""
        tables: dict[int, Tensor] = {}
        for module in decoder.modules():
            if getattr(module, "has_relative_attention_bias", False):
                attention: Any = module
                size = attention.relative_attention_max_distance + 1
                # The last row looks back over all distances, the furthest first.
                tables[attention.layer_idx] = attention.compute_bias(size, size)[0, :, -1].flip(-1)
        return cls(tables) if tables else None

    def table_layer(self, layer: int) -> int:
        """Return the layer whose biases serve a layer."""
        return layer if layer in self._tables else min(self._tables)

    def at(self, layer: int, distances: Tensor, like: Tensor) -> Tensor:
        """Return the biases [B, heads, W, keys] of a layer at distances [B, W, keys].

        What lies ahead (a distance below 0) gets that of 0: it is masked anyway.
        """
        table = self._tables[self.table_layer(layer)].to(like.device, like.dtype)
        found = table[:, distances.to(like.device).clamp(0, table.shape[1] - 1)]
        return found.transpose(0, 1)
