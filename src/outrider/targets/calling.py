"""How a model is given the rows of a pass: what its forward takes, and what its attention does."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.targets.attention import AttentionSwitch
from outrider.targets.cache import KVCache, Placement
from outrider.targets.padded import Branches, PaddedPlan


class ModelCall:
    """A decoder-only model, called with the ids and positions of all rows."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.switch = AttentionSwitch(model)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    def plan(
        self,
        cache: KVCache,
        placement: Placement,
        bucket: int,
        positions: Tensor,  # [B, W]
        branches: Sequence[Branches | None],
        *,
        tile: int,
        in_order: bool,
    ) -> PaddedPlan:
        """Return the plan of a pass (arguments as for `PaddedPlan`)."""
        return PaddedPlan(
            cache, placement, bucket, positions, branches, tile=tile, in_order=in_order
        )

    def logits(
        self, input_ids: Tensor, position_ids: Tensor, plan: PaddedPlan, keep: int | None
    ) -> Tensor:
        """Return the logits [B, W, V] of rows, or those of the last `keep` where the model can.

        The switch is on.
        """
        options = {} if keep is None or not self._keeps_logits else {"logits_to_keep": _last(keep)}
        logits: Tensor = self.model(
            input_ids=input_ids,
            position_ids=position_ids,
            use_cache=False,
            outrider_plan=plan,
            **options,
        ).logits
        return logits


def _last(count: int) -> int | Tensor:
    """Return what Transformers' models take for "the last so many rows": to them, 0 is all."""
    return count or torch.empty(0, dtype=torch.long)
