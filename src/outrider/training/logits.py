"""What a model does to the numbers of its output layer before it gives them out as logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.errors import OptionError
from outrider.targets.base import NORMED
from outrider.targets.features import FeatureTap

_PROBE = (1, 2, 3)  # token ids that every vocabulary has
_TOLERANCE = 0.02  # of the spread of the logits, for models in half precision


@dataclass(frozen=True, slots=True)
class LogitShaping:
    """A factor, and a cap that numbers approach and never reach."""

    scale: float = 1.0
    cap: float = math.inf

    def __call__(self, logits: Tensor) -> Tensor:
        """Return logits as the model gives them out, from what its output layer said."""
        if self.scale != 1:
            logits = logits * self.scale
        return logits if self.cap == math.inf else self.cap * torch.tanh(logits / self.cap)

    @classmethod
    def of(cls, model: PreTrainedModel) -> LogitShaping:
        """Find it in a model's configuration, and make sure of it on a few tokens.

        Raises OptionError for a model that does something else.
        """
        config = model.config.get_text_config(decoder=True)
        scale = float(getattr(config, "logit_scale", None) or 1.0)
        scale /= float(getattr(config, "logits_scaling", None) or 1.0)
        cap = getattr(config, "final_logit_softcapping", None)
        found = cls(scale, math.inf if cap is None else float(cap))
        found._require(model)
        return found

    @torch.no_grad()
    def _require(self, model: PreTrainedModel) -> None:
        tap = FeatureTap(model, (NORMED,))
        ids = torch.tensor([_PROBE], device=model.device)
        with tap.on():
            wanted = model(input_ids=ids, use_cache=False).logits.float()
        (normed,) = tap.states()
        get_output: Any = model.get_output_embeddings  # untyped there
        found = self(get_output()(normed)).float()
        if (found - wanted).abs().max() > _TOLERANCE * (wanted.amax() - wanted.amin()):
            raise OptionError(
                f"{type(model).__name__} does more to its logits than outrider knows of: "
                "no drafter can be trained on what it says"
            )
