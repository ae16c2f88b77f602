"""Practice of new attention heads: short steps, in which nothing but them learns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.training.copying.new_heads import NewHeads
from outrider.training.copying.texts import CopyingBatch, CopyingTexts

LOOKING = 0.5
"""Weight of where heads look, beside what the drafter says."""
UNMATCHED = 0.3
"""Weight of looking at the first token where there is nothing to copy."""

_WARM_UP, _COOLING = 15, 0.4  # steps; share of the steps


@dataclass(frozen=True, slots=True)
class Practice:
    """How long heads practise, how far a step takes them, and what is to become less."""

    steps: int
    rate: float
    loss: Callable[[CopyingBatch], Tensor]

    def take(
        self, heads: NewHeads, texts: CopyingTexts, say: Callable[[str], None] = lambda _: None
    ) -> None:
        """Train the new heads alone, on made-up texts and real ones in turns."""
        parameters = heads.parameters
        rate = self.rate
        optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
        for step in range(self.steps):
            say(f"learning to copy: step {step + 1} of {self.steps}")
            found = self.loss(texts.real() if step % 2 else texts.made_up())
            heads.model.zero_grad()
            found.backward()  # type: ignore[no-untyped-call]
            heads.keep_gradients()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            share = min(1.0, (step + 1) / _WARM_UP, (1 - step / self.steps) / _COOLING)
            optimizer.param_groups[0]["lr"] = rate * share
            optimizer.step()


def surprise(shares: Tensor) -> Tensor:
    """Return the mean of -log of shares of attention; 0 where there is none."""
    return -shares.clamp_min(1e-20).log().mean() if shares.numel() else shares.sum()
