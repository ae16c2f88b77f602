"""Lessons for Medusa heads (2401.10774): each guesses one of the tokens ahead, the target as it is.

The state at token t gives token t + 1 by the target itself; head k, counted from 0, learns what the
target says after token t + k + 1, which is token t + k + 2.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from outrider.checkpoints.base import Checkpoint
from outrider.heads.medusa import MedusaHead, MedusaHeads
from outrider.training.base import Batch, Lesson, Marks
from outrider.training.losses import find_grading
from outrider.training.teacher import Teacher

_FADING = 0.8  # a head's weight next to that of the head before


class MedusaLesson(Lesson):
    """Trains Medusa heads for a target that stays untouched (Medusa-1).

    Heads that share the target's output layer are taught over the `teacher`'s token ids alone,
    which costs less than over all of them and leaves out only what is hardly ever said.
    """

    def __init__(self, heads: MedusaHeads, teacher: Teacher, *, loss: str = "hybrid") -> None:
        self.module = heads
        self._heads = heads
        self._teacher = teacher
        self._grading = find_grading(loss)
        self._dtype = next(heads.parameters()).dtype

    def marks(self, batch: Batch) -> Marks:
        lecture = self._teacher.teach(batch)
        normed = lecture.normed.flatten(0, 1)
        losses, alphas, matches = [], [], []
        for depth, head in enumerate(self._heads.heads):
            assert isinstance(head, MedusaHead)
            counts = functional.pad(batch.counts[:, depth + 2 :], (0, depth + 2))
            rows = counts[:, : batch.ids.shape[1]].flatten().nonzero().flatten()
            if not len(rows):
                continue
            asked = rows + depth + 1
            answers = self._teacher.answers(normed[asked], lecture.verdicts_at(asked))
            logits = self._logits(head, normed[rows])
            graded, alpha = self._grading(answers.p, logits)
            loss = graded * answers.is_known
            match = (logits.max(dim=-1).indices == answers.likeliest) & answers.is_known
            losses.append(_FADING**depth * loss.mean())
            alphas.append(float(alpha.mean()))
            matches.append(float(match.float().mean()))
        if not losses:
            nothing = sum(parameter.sum() * 0 for parameter in self._heads.parameters())
            return Marks(torch.as_tensor(nothing), (), ())
        total = torch.stack(losses).sum() / sum(_FADING**depth for depth in range(len(losses)))
        return Marks(total, tuple(alphas), tuple(matches))

    def _logits(self, head: MedusaHead, normed: Tensor) -> Tensor:
        hidden = head(normed.to(self._dtype))
        if head.output is None:
            return self._teacher.logits(hidden)
        logits: Tensor = head.output(hidden)
        return logits if self._teacher.ids is None else logits[:, self._teacher.ids]

    def finished(self) -> Checkpoint:
        tensors = {name: part.detach().cpu() for name, part in self._heads.state_dict().items()}
        return Checkpoint(config=self._heads.config, tensors=tensors)
