"""Draft models that are given heads which copy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.checkpoints.base import Checkpoint
from outrider.errors import OptionError
from outrider.targets.features import base_model
from outrider.training.base import Sample
from outrider.training.copying import draft, texts, with_copying_heads
from outrider.training.copying.draft import DraftCopying
from outrider.training.copying.more_heads import Heads, with_more_heads
from outrider.training.copying.recurrence import NOWHERE
from outrider.training.copying.texts import CopyingTexts
from outrider.training.draft import depth_cut, to_be_trained
from outrider.training.teacher import Teacher
from support.copying import WORDS, samples, target
from support.tiny import random_ids


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little texts, and steps as small as the weights of tiny models."""
    monkeypatch.setattr(texts, "_MADE_UP", 60)
    monkeypatch.setattr(texts, "_TOKENS", 600)
    monkeypatch.setattr(draft, "_RATE", 3e-4)
    monkeypatch.setattr(draft, "_STEPS", 200)


def share_copied(draft: Checkpoint, model: PreTrainedModel, teacher: Teacher) -> float:
    """Return how much of what recurs in texts that were not learnt a draft model knows."""
    asked = CopyingTexts(samples(), teacher, WORDS, seed=99).made_up()
    base: Any = base_model(to_be_trained(draft, model))
    with torch.inference_mode():
        states = base(input_ids=asked.batch.ids, use_cache=False).last_hidden_state
        said = teacher.logits(states[asked.counts]).argmax(dim=-1)
    return float((said == asked.following[asked.counts]).float().mean())


@pytest.mark.usefixtures("small")
def test_a_draft_model_copies_from_texts_it_never_saw() -> None:
    model = target()
    teacher = Teacher(model, ())
    before = depth_cut(model, [0, 1, 2])
    after = with_copying_heads(before, model, teacher, samples())
    assert share_copied(before, model, teacher) < 0.02
    assert share_copied(after, model, teacher) > 0.25


@pytest.mark.usefixtures("small")
def test_all_but_the_new_heads_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "_STEPS", 4)
    model = target()
    known = torch.arange(0, WORDS, 2)
    before = depth_cut(model, [0, 1, 2])
    said: list[str] = []
    found = [
        with_copying_heads(before, model, Teacher(model, (), known), samples(), say=said.append)
        for _ in range(2)
    ]
    assert said[-1] == "learning to copy: step 4 of 4"
    for name, part in before.tensors.items():
        kept: Tensor = found[0].tensors[name]
        assert torch.equal(kept[tuple(slice(size) for size in part.shape)], part)
    for name, part in found[0].tensors.items():
        assert torch.equal(part, found[1].tensors[name])
        assert not part.requires_grad


def test_a_long_prompt_leaves_something_to_be_learnt_of_its_answer() -> None:
    model = target()
    long = [Sample(random_ids(900, 1, WORDS), 880)]
    asked = CopyingTexts(long, Teacher(model, ()), WORDS, seed=3).real()
    assert asked.batch.ids.shape[1] <= 512
    assert (asked.counts.sum(dim=1) == 20).all()


def test_a_model_that_does_not_tell_where_it_looks_is_refused() -> None:
    model = target()
    teacher = Teacher(model, ())
    wider = with_more_heads(depth_cut(model, [0, 1]), 2, seed=0)
    some = CopyingTexts(samples(), teacher, WORDS, seed=0)
    module = to_be_trained(wider, model)
    heads = DraftCopying(module, Heads(4, 2, 32), teacher, some, autocast=False)
    silent: Any = base_model(module)
    shown = silent.forward
    silent.forward = lambda **given: shown(**(given | {"output_attentions": False}))
    with pytest.raises(OptionError, match="of the kind llama do not tell where they look"):
        heads.learn()


def test_a_draft_model_of_one_layer_is_refused() -> None:
    model = target()
    with pytest.raises(OptionError, match="copying takes two layers; this draft model has one"):
        with_copying_heads(depth_cut(model, [0]), model, Teacher(model, ()), samples())


def test_what_is_to_be_said_in_a_made_up_text_is_what_was_said_before() -> None:
    model = target()
    known = torch.arange(0, WORDS, 2)
    asked = CopyingTexts(samples(), Teacher(model, (), known), WORDS, seed=3).made_up()
    rows, places = asked.counts.nonzero(as_tuple=True)
    assert len(rows) > 50
    ids = asked.batch.ids
    assert (asked.sources[rows, places] != NOWHERE).all()
    following = ids[rows, places + 1]
    assert torch.equal(ids[rows, asked.sources[rows, places]], following)
    assert torch.equal(known[asked.following[rows, places]], following)
    found, lost = asked.found, asked.lost
    assert len(found[0]) + len(lost[0]) == int(asked.batch.real.sum())


def test_of_a_real_text_what_is_learnt_is_what_counts_in_it() -> None:
    model = target()
    asked = CopyingTexts(samples(), Teacher(model, ()), WORDS, seed=3).real()
    assert not asked.counts[:, :7].any()
    assert asked.counts[:, 7:-1].all()
    assert torch.equal(asked.following[:, :-1], asked.batch.ids[:, 1:])
