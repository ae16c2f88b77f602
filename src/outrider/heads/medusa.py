"""Medusa heads: each guesses one of the tokens to come from the target's last hidden state.

Cai et al., 2401.10774. The state at position t gives token t + 1 by the target itself; head k,
counted from 0, gives token t + k + 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outrider.errors import OptionError
from outrider.heads.config import MedusaConfig
from outrider.heads.fill import fill


class MedusaHead(nn.Module):
    """One head: residual blocks x + SiLU(W x + b), then an output layer if it has its own.

    The original implementation applies one and the same block `num_layers` times; its files list
    that block under every index, so the two ways are equal once loaded.
    """

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        width, vocab = config.hidden_size, config.vocab_size
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(config.num_layers))
        self.output = nn.Linear(width, vocab, bias=False) if config.owns_output else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the hidden states [R, H] after the residual blocks."""
        for block in self.blocks:
            hidden = hidden + functional.silu(block(hidden))
        return hidden


class MedusaHeads(nn.Module):
    """All the heads of a target, over rows of any number of requests side by side."""

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        self.config = config
        self.heads = nn.ModuleList(MedusaHead(config) for _ in range(config.num_heads))

    @classmethod
    def load(cls, config: MedusaConfig, tensors: Mapping[str, Tensor]) -> MedusaHeads:
        """Build the heads from their tensors, which they keep in their type; all are needed.

        Raises LoadError for a tensor that is missing, unknown or of another shape.
        """
        with torch.device("meta"):
            heads = cls(config)
        fill(heads, tensors, "the Medusa checkpoint")
        return heads

    def forward(
        self,
        hidden: Tensor,
        output_layer: Callable[[Tensor], Tensor] | None = None,
        *,
        count: int | None = None,
    ) -> Tensor:
        """Return the logits [K, R, V] of each head after the target's hidden states [R, H].

        `count` limits the heads to the first so many. `output_layer`, the target's, serves heads
        that have none of their own; without either an OptionError is raised.
        """
        count = self.config.num_heads if count is None else count
        if not 1 <= count <= self.config.num_heads:
            raise OptionError(f"count is {count}, must be 1 to {self.config.num_heads}")
        heads: list[Any] = list(self.heads)[:count]
        states = torch.stack([head(hidden) for head in heads])
        if self.config.owns_output:
            return torch.stack([head.output(one) for head, one in zip(heads, states, strict=True)])
        if output_layer is None:
            raise OptionError("the Medusa heads have no output layer: the target's must be given")
        # One pass of the large layer over the states of all heads.
        logits = output_layer(states.flatten(0, 1))
        return logits.reshape(count, len(hidden), -1)
