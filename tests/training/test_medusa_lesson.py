"""Each head learns the token it will be asked for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from outrider.heads.config import MedusaConfig
from outrider.heads.medusa import MedusaHeads
from outrider.training.base import Sample, batch_of
from outrider.training.medusa import MedusaLesson
from outrider.training.teacher import Teacher
from support.seeded import medusa_tensors
from support.tiny import VOCAB, random_ids, shared_model, tiny_model


def heads(owns_output: bool, num_heads: int = 3) -> MedusaHeads:
    config = MedusaConfig(
        num_heads=num_heads,
        num_layers=1,
        hidden_size=32,
        vocab_size=VOCAB,
        owns_output=owns_output,
    )
    return MedusaHeads.load(config, medusa_tensors(config))


def test_head_k_learns_what_the_target_says_after_token_t_plus_k_plus_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TRAIN-3: its label is token t + k + 2, and the last k + 2 places give none."""
    model = shared_model()
    teacher = Teacher(model, ())
    lesson = MedusaLesson(heads(True, 5).double(), teacher)
    asked: list[Tensor] = []
    answers = teacher.answers

    def noted(normed: Tensor, verdicts: None) -> object:
        asked.append(normed)
        return answers(normed, verdicts)

    monkeypatch.setattr(teacher, "answers", noted)
    text = random_ids(16, 3)
    with torch.no_grad():
        lesson.marks(batch_of([Sample(text)]))
        states = model(torch.tensor([text]), output_hidden_states=True).hidden_states[-1][0]
    for head, rows in enumerate(asked):
        assert len(rows) == 16 - head - 2
        torch.testing.assert_close(rows, states[head + 1 : 15])


def test_a_text_too_short_for_any_head_teaches_nothing() -> None:
    lesson = MedusaLesson(heads(True).double(), Teacher(shared_model(), ()))
    marks = lesson.marks(batch_of([Sample((1, 2))]))
    assert float(marks.loss.detach()) == 0
    marks.loss.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("owns_output", [True, False])
@pytest.mark.parametrize("ids", [None, torch.arange(0, VOCAB, 2)])
def test_learning_raises_the_acceptance_of_every_head(
    owns_output: bool, ids: Tensor | None
) -> None:
    model = tiny_model(dtype=torch.float32, scale=3.0)
    trained = heads(owns_output)
    lesson = MedusaLesson(trained, Teacher(model, (), ids))
    batch = batch_of([Sample(random_ids(24, seed), 4) for seed in range(8)])
    optimizer = torch.optim.AdamW(trained.parameters(), lr=3e-3)
    before = lesson.marks(batch)
    for _ in range(50):
        optimizer.zero_grad()
        lesson.marks(batch).loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    after = lesson.marks(batch)
    assert float(after.loss.detach()) < float(before.loss.detach())
    for first, last in zip(before.alphas, after.alphas, strict=True):
        assert last > first
    assert all(parameter.grad is None for parameter in model.parameters())
