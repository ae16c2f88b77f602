"""What learns: the module of a lesson with its optimizer, one step at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from outrider.errors import LoadError, OptionError
from outrider.training.base import Batch, Lesson, Marks
from outrider.training.figures import Figures, figures_of, mean, shares_of
from outrider.training.optimizer import Optimizer, trained
from outrider.training.settings import TrainOptions

if TYPE_CHECKING:
    from outrider.checkpoints.base import Tensors


class Learner:
    """A lesson whose module is trained.

    Whatever a lesson draws it must draw from PyTorch's generators: they are set anew for each
    step, to what the seed and the number of the step say.
    """

    def __init__(self, lesson: Lesson, options: TrainOptions) -> None:
        """Raises OptionError for a module that cannot be trained as it is, or where it is."""
        self.module = lesson.module
        self._lesson = lesson
        self._options = options
        self._parameters = list(trained(lesson.module).values())
        self.device = self._parameters[0].device
        if options.autocast:
            _require_bfloat16(self.device)
        self._optimizer = Optimizer(lesson.module, options)

    def learn(self, step: int, batches: Sequence[Batch]) -> tuple[Figures, float]:
        """Find the gradient of some batches as if they were one; return it as a norm.

        The gradient that is left for `update` is no longer than the options allow.
        """
        _seed(self._options.seed, step)
        self.module.train()
        self.module.zero_grad()
        shares = shares_of(batches)
        found = []
        for batch, share in zip(batches, shares, strict=True):
            marks = self._marks(batch)
            found.append(figures_of(marks))
            (marks.loss * share).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._options.clip)
        return mean(found, shares), float(norm)

    def update(self, rate: float) -> None:
        """Go a step along the gradient, at a learning rate."""
        self._optimizer.step(rate)

    @torch.no_grad()
    def look(self, batches: Sequence[Batch]) -> Figures:
        """Return how well batches are known, without learning from them."""
        _seed(self._options.seed, 0)  # whatever is drawn, every look draws the same
        self.module.eval()
        return mean([figures_of(self._marks(batch)) for batch in batches], shares_of(batches))

    def _marks(self, batch: Batch) -> Marks:
        is_on = self._options.autocast
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_on):
            return self._lesson.marks(batch)

    def state(self) -> tuple[Tensors, Tensors]:
        """Return the weights, and what the optimizer remembers."""
        return self.module.state_dict(), self._optimizer.tensors()

    def restore(self, weights: Tensors, optimizer: Tensors | None = None) -> None:
        """Put back weights, and what the optimizer remembered; raises LoadError for another's."""
        try:
            self.module.load_state_dict(dict(weights))
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise LoadError(f"the weights are of another drafter: {reason}") from error
        if optimizer is not None:
            self._optimizer.restore(optimizer)


def _seed(seed: int, step: int) -> None:
    digest = hashlib.sha256(f"{seed} {step}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def _require_bfloat16(device: torch.device) -> None:
    """Raise OptionError for a device that has no arithmetic in bfloat16."""
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise OptionError(f"autocast needs bfloat16, which {device} does not have")
