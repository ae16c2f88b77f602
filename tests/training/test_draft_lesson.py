"""Draft models cut out of a target, and taught to say what it says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from outrider.errors import OptionError
from outrider.targets.features import decoder_layers
from outrider.training.base import Sample, batch_of
from outrider.training.draft import DraftLesson, depth_cut
from outrider.training.teacher import Teacher
from support.tiny import VOCAB, random_ids, tiny_model


def test_all_layers_make_the_model_itself() -> None:
    model = tiny_model(dtype=torch.float32, num_hidden_layers=3)
    copy: Any = depth_cut(model, [0, 1, 2])
    ids = torch.tensor([random_ids(9)])
    with torch.inference_mode():
        assert torch.equal(copy(ids).logits, model(ids).logits)


def test_the_layers_that_are_named_are_kept_in_order() -> None:
    model = tiny_model(dtype=torch.float32, num_hidden_layers=4)
    kept = decoder_layers(depth_cut(model, [1, 3]))
    for layer, place in ((1, 0), (3, 1)):
        ours = dict(kept[place].named_parameters())
        for name, parameter in decoder_layers(model)[layer].named_parameters():
            assert torch.equal(ours[name], parameter)


@pytest.mark.parametrize("layers", [[], [2, 1], [0, 0], [4], [-1]])
def test_layers_that_are_not_there_are_refused(layers: list[int]) -> None:
    with pytest.raises(OptionError, match="they must rise, within 0 to 3"):
        depth_cut(tiny_model(num_hidden_layers=4), layers)


@pytest.mark.parametrize("known", [None, torch.arange(0, VOCAB, 2)])
def test_learning_raises_acceptance_and_leaves_what_is_shared(known: torch.Tensor | None) -> None:
    model = tiny_model(dtype=torch.float32, scale=3.0, num_hidden_layers=4)
    draft = depth_cut(model, [0, 3])
    embeddings: Any = draft.get_input_embeddings()
    shared = embeddings.weight.detach().clone()
    lesson = DraftLesson(draft, Teacher(model, (), known))
    batch = batch_of([Sample(random_ids(24, seed), 4) for seed in range(8)])
    trained = [parameter for parameter in draft.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-3)
    before = lesson.marks(batch)
    for _ in range(50):
        optimizer.zero_grad()
        lesson.marks(batch).loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    after = lesson.marks(batch)
    assert after.alphas[0] > before.alphas[0]
    assert torch.equal(embeddings.weight, shared)
