"""Lessons for EAGLE heads: EAGLE-3 unrolled as it will draft, EAGLE-1 one step by features.

Token t + 1 stands beside the features of token t, and step j, counted from 0, guesses token
t + 2 + j. So the target's word on that guess is what it says after token t + 1 + j.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outrider.checkpoints.base import Checkpoint
from outrider.errors import OptionError
from outrider.heads.eagle import EagleHead
from outrider.training.base import Batch, Lesson, Marks, shifted
from outrider.training.losses import acceptance, find_grading
from outrider.training.teacher import Answers, Lecture, Teacher
from outrider.training.unroll import UnrolledAttention

_FADING = 0.8  # a step's weight next to that of the step before


class Eagle3Lesson(Lesson):
    """Trains an EAGLE-3 head on its own drafts of `steps` tokens (2503.01840, section 3.2).

    `closeness` is the weight of a second aim: what the head's output layer reads is to be what the
    target's reads. EAGLE-3 does without it, and learns more from much data for it; from little
    data a head learns sooner with it, as it says much more of each token than the token does.
    """

    def __init__(
        self,
        head: EagleHead,
        teacher: Teacher,
        *,
        steps: int = 5,
        loss: str = "hybrid",
        closeness: float = 0.0,
    ) -> None:
        if closeness and head.config.hidden_size != head.config.target_hidden_size:
            raise OptionError("closeness needs a head as wide as the target")
        self._closeness = closeness
        if steps < 1:
            raise OptionError(f"steps is {steps}, must be at least 1")
        self.module = head
        self.ids = teacher.ids
        self._head = head
        self._teacher = teacher
        self._steps = steps
        self._grading = find_grading(loss)
        self._embed: Any = teacher.model.get_input_embeddings()
        if head.embed_tokens is not None:
            head.embed_tokens.requires_grad_(False)

    def marks(self, batch: Batch) -> Marks:
        lecture = self._teacher.teach(batch)
        exam = _Exam(self._teacher, lecture, batch)
        size, length = batch.ids.shape
        attention = UnrolledAttention(size, length)
        dtype = self._head.fc.weight.dtype
        hidden = self._head.fuse(lecture.features.flatten(0, 1).to(dtype))
        places = torch.arange(length, device=batch.ids.device).repeat(size)
        losses, alphas, matches = [], [], []
        weights = [_FADING**step for step in range(self._steps)]
        for step in range(self._steps):
            tokens = shifted(batch.ids, step + 1).flatten()
            embeddings = self._head.embed(tokens, self._embed).to(dtype)
            output = self._head(embeddings, hidden, places + step, attention)
            hidden = output.state
            loss, alpha, match = self._step(output.output, exam, step)
            losses.append(loss)
            alphas.append(alpha)
            matches.append(match)
        total = sum(weight * loss for weight, loss in zip(weights, losses, strict=True))
        return Marks(torch.as_tensor(total) / sum(weights), tuple(alphas), tuple(matches))

    def _step(self, output: Tensor, exam: _Exam, step: int) -> tuple[Tensor, float, float]:
        """Return the loss of a step, its mean acceptance, and the share of likeliest tokens."""
        asked, answers = exam.of_step(step)
        if not len(asked):
            return output.sum() * 0, 0.0, 0.0
        logits = self._head.logits(output[asked])
        rows, alpha = self._grading(answers.p, logits)
        match = (logits.max(dim=-1).indices == answers.likeliest) & answers.is_known
        # Where the target's likeliest token cannot be drafted there is nothing to be learnt.
        loss = (rows * answers.is_known).sum() / len(asked)
        if self._closeness:
            wanted = exam.normed[asked + step + 1].to(output.dtype)
            loss = loss + self._closeness * functional.smooth_l1_loss(output[asked], wanted)
        return loss, float(alpha.mean()), float(match.float().mean())

    def finished(self) -> Checkpoint:
        tensors = {name: part.detach().cpu() for name, part in self._head.state_dict().items()}
        return Checkpoint(config=self._head.config, tensors=tensors)


class _Exam:
    """What the target says wherever it is asked, worked out once for all steps."""

    def __init__(self, teacher: Teacher, lecture: Lecture, batch: Batch) -> None:
        self._counts = batch.counts
        self.normed = lecture.normed.flatten(0, 1)
        asked = shifted(batch.counts, 1).flatten().nonzero().flatten()
        self._answers = teacher.answers(self.normed[asked], lecture.verdicts_at(asked))
        self._place = torch.zeros(batch.counts.numel(), dtype=torch.long, device=asked.device)
        self._place[asked] = torch.arange(len(asked), device=asked.device)

    def of_step(self, step: int) -> tuple[Tensor, Answers]:
        """Return the rows [R] that guess a token which counts, and what the target says there."""
        asked = shifted(self._counts, step + 2).flatten().nonzero().flatten()
        return asked, self._answers.rows(self._place[asked + step + 1])


class Eagle1Lesson(Lesson):
    """Trains an EAGLE-1 head to foretell features, and through them tokens (2401.15077)."""

    _TOKENS = 0.1  # weight of the tokens next to that of the features
    _NOISE = 0.2

    def __init__(self, head: EagleHead, teacher: Teacher) -> None:
        self.module = head
        self._head = head
        self._teacher = teacher
        self._embed: Any = teacher.model.get_input_embeddings()
        get_output: Any = teacher.model.get_output_embeddings
        self._output_layer = get_output()

    def marks(self, batch: Batch) -> Marks:
        lecture = self._teacher.teach(batch)
        size, length = batch.ids.shape
        dtype = self._head.fc.weight.dtype
        features = lecture.features.flatten(0, 1).to(dtype)
        if self._head.training:
            noise = torch.rand_like(features) - 0.5
            features = features + noise * (self._NOISE * 512 / length)
        places = torch.arange(length, device=batch.ids.device).repeat(size)
        embeddings = self._head.embed(shifted(batch.ids, 1).flatten(), self._embed).to(dtype)
        output = self._head(embeddings, features, places, UnrolledAttention(size, length))
        rows = shifted(batch.counts, 2).flatten().nonzero().flatten()
        if not len(rows):
            return Marks(output.output.sum() * 0, (0.0,), (0.0,))
        wanted = lecture.normed.flatten(0, 1)[rows + 1].to(dtype)
        answers = self._teacher.answers(
            lecture.normed.flatten(0, 1)[rows + 1], lecture.verdicts_at(rows + 1)
        )
        logits = self._output_layer(output.output[rows]).float()
        closeness = functional.smooth_l1_loss(output.output[rows], wanted)
        tokens = -(answers.p * logits.log_softmax(dim=-1)).sum(dim=-1).mean()
        alpha = acceptance(answers.p, logits.detach()).mean()
        match = (logits.max(dim=-1).indices == answers.likeliest).float().mean()
        return Marks(closeness + self._TOKENS * tokens, (float(alpha),), (float(match),))

    def finished(self) -> Checkpoint:
        tensors = {name: part.detach().cpu() for name, part in self._head.state_dict().items()}
        return Checkpoint(config=self._head.config, tensors=tensors)
