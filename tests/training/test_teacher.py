"""A teacher says what its target says, whatever that does behind its output layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from outrider.errors import OptionError
from outrider.training.base import Sample, batch_of
from outrider.training.teacher import Teacher
from support.tiny import VOCAB, random_ids, tiny_model

SHAPED: dict[str, dict[str, Any]] = {
    "gemma2": {},
    "cohere": {"logit_scale": 0.3},
    "granite": {"logits_scaling": 4.0},
}


@pytest.mark.parametrize("architecture", SHAPED)
@pytest.mark.parametrize("is_kept", [False, True])
def test_a_teacher_says_what_the_target_says(architecture: str, is_kept: bool) -> None:
    model = tiny_model(architecture, **SHAPED[architecture])
    ids = random_ids(12, 3)
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([ids])).logits[0].float().softmax(dim=-1)
    drafted = torch.tensor([3, 9, 40])
    teacher = Teacher(model, (), drafted)
    normed = teacher.teach(batch_of([Sample(ids)])).normed[0]
    answers = teacher.answers(normed, teacher.verdicts(normed) if is_kept else None)
    torch.testing.assert_close(answers.p.float(), wanted[:, drafted], atol=1e-5, rtol=1e-4)


def test_a_target_that_does_something_else_to_its_logits_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model()
    own = type(model).forward

    def shifted(self: PreTrainedModel, *args: object, **kwargs: object) -> object:
        output = own(self, *args, **kwargs)
        output.logits = output.logits * torch.arange(VOCAB)
        return output

    monkeypatch.setattr(type(model), "forward", shifted)
    with pytest.raises(OptionError, match="does more to its logits than outrider knows of"):
        Teacher(model, ())
