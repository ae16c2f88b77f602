"""EAGLE heads that are given attention heads which copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import PreTrainedModel

from outrider.checkpoints.base import Checkpoint
from outrider.errors import OptionError
from outrider.heads.config import EagleConfig
from outrider.heads.eagle import EagleHead
from outrider.training.base import Sample, batch_of, shifted
from outrider.training.copying import eagle, texts, with_copying_heads
from outrider.training.copying.eagle import WatchedAttention
from outrider.training.copying.more_heads import Heads, with_more_heads
from outrider.training.copying.texts import CopyingTexts
from outrider.training.initial import default_eagle_config, eagle_1_config, initial_eagle_head
from outrider.training.teacher import Teacher
from outrider.training.unroll import UnrolledAttention
from support.copying import WORDS, samples, target


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little texts."""
    monkeypatch.setattr(texts, "_MADE_UP", 60)
    monkeypatch.setattr(texts, "_TOKENS", 600)


def untrained(model: PreTrainedModel, ids: torch.Tensor | None = None) -> Checkpoint:
    """Return a head that reads of a target's states what they began with, and says little."""
    config = replace(default_eagle_config(model), feature_layers=(0, 1, 2), head_dim=32)
    maps = {}
    if ids is not None:
        config = replace(config, draft_vocab_size=len(ids))
        known = torch.zeros(WORDS, dtype=torch.bool).index_fill(0, ids, True)
        maps = {"d2t": ids - torch.arange(len(ids)), "t2d": known}
    head = initial_eagle_head(config, model, maps)
    torch.nn.init.zeros_(head.fc.weight)
    width = model.config.hidden_size
    head.fc.weight.data[:, :width] = torch.eye(width)
    return Checkpoint(config=config, tensors=head.state_dict())


def config_of(checkpoint: Checkpoint) -> EagleConfig:
    assert isinstance(checkpoint.config, EagleConfig)
    return checkpoint.config


def teacher_of(model: PreTrainedModel, ids: torch.Tensor | None = None) -> Teacher:
    return Teacher(model, (0, 1, 2), ids)


def said(checkpoint: Checkpoint, model: PreTrainedModel, batch: Any) -> torch.Tensor:
    """Return the first logits a head drafts after each row, [B * T, D]."""
    head = EagleHead.load(config_of(checkpoint), checkpoint.tensors).float()
    size, length = batch.ids.shape
    embed: Any = model.get_input_embeddings()
    with torch.inference_mode():
        features = teacher_of(model).teach(batch).features.flatten(0, 1)
        tokens = shifted(batch.ids, 1).flatten()
        output = head(
            head.embed(tokens, embed),
            head.fuse(features),
            torch.arange(length).repeat(size),
            UnrolledAttention(size, length),
        )
        return head.logits(output.output)


def share_copied(checkpoint: Checkpoint, model: PreTrainedModel, teacher: Teacher) -> float:
    """Return how much of what recurs in texts that were not learnt a head knows."""
    asked = CopyingTexts(samples(), teacher, WORDS, seed=99).made_up()
    rows = shifted(asked.counts, 1).flatten()
    found = said(checkpoint, model, asked.batch)[rows].argmax(dim=-1)
    wanted = shifted(asked.following, 1).flatten()[rows]
    return float((found == wanted).float().mean())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ids", [None, torch.arange(0, WORDS, 2)], ids=["all ids", "half of them"])
def test_an_eagle_head_copies_from_texts_it_never_saw(ids: torch.Tensor | None) -> None:
    model = target()
    before = untrained(model, ids)
    teacher = teacher_of(model, ids)
    after = with_copying_heads(before, model, teacher, samples())
    assert share_copied(before, model, teacher) < 0.02
    assert share_copied(after, model, teacher) > 0.25


@pytest.mark.usefixtures("small")
def test_all_but_the_new_heads_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eagle, "_STEPS", 4)
    model = target()
    before = untrained(model)
    told: list[str] = []
    found = [
        with_copying_heads(before, model, teacher_of(model), samples(), say=told.append)
        for _ in range(2)
    ]
    assert told[-1] == "learning to copy: step 4 of 4"
    old, new = Heads.of(config_of(before)), Heads.of(config_of(found[0]))
    assert new.queries >= old.queries + 2 and new.size == old.size
    for name, part in before.tensors.items():
        kept = found[0].tensors[name]
        assert torch.equal(kept[tuple(slice(size) for size in part.shape)], part)
    for name, part in found[0].tensors.items():
        assert torch.equal(part, found[1].tensors[name])
        assert not part.requires_grad


def test_an_eagle_head_says_the_same_with_more_heads() -> None:
    model = target()
    before = untrained(model)
    after = with_more_heads(before, 2, seed=0)
    batch = batch_of(samples()[:2])
    torch.testing.assert_close(*(said(one, model, batch) for one in (before, after)))


def test_what_is_watched_is_where_the_last_heads_look() -> None:
    rows, length = 6, 3
    query, key, value = torch.randn(3, rows, 4, 8)
    plain, watched = UnrolledAttention(2, length), WatchedAttention(2, length, 3)
    for _ in range(2):
        mixed = watched(0, query, key[:, :2], value[:, :2])
        assert torch.equal(mixed, plain(0, query, key[:, :2], value[:, :2]))
    first, second = watched.looks
    assert first.shape == second.shape == (2, 1, length, length)
    torch.testing.assert_close(first.sum(dim=-1), torch.ones(2, 1, length))
    assert (second.sum(dim=-1) < 1).all()
    scores = functional.pad(query[:3, 3] @ key[:3, 1].T / 8**0.5, (0, 0))
    seen = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(first[0, 0], seen.softmax(dim=-1))


@pytest.mark.usefixtures("small")
def test_where_a_draft_is_to_look_is_behind_what_it_follows() -> None:
    """Step s goes on from token i + 1 + s, which stood in the features of the row looked at."""
    model = target()
    asked = CopyingTexts(samples(), teacher_of(model), WORDS, seed=5).made_up()
    length = asked.batch.ids.shape[1]
    for step in range(3):
        rows, there = shifted(asked.counts, step + 1).nonzero(as_tuple=True)
        source = asked.sources[rows, there + 1 + step] - 1
        ids = asked.batch.ids
        assert torch.equal(ids[rows, source], ids[rows, there + 1 + step])
        assert torch.equal(ids[rows, source + 1], ids[rows, there + 2 + step])
        looks = torch.full((len(ids), 1, length, length), 1e-9)
        looks[:, :, :, 0] = 1.0
        for row, place in (asked.sources > 0).nonzero().tolist():
            if place > step:
                looks[row, 0, place - 1 - step, asked.sources[row, place] - 1] = 1.0
        assert abs(float(eagle._looking(asked, looks, step))) < 1e-6
        assert float(eagle._looking(asked, looks.roll(1, dims=-1), step)) > 5.0


def test_an_eagle_1_head_is_refused() -> None:
    model = target()
    head = initial_eagle_head(eagle_1_config(model), model, {})
    one = Checkpoint(config=head.config, tensors=head.state_dict())
    with pytest.raises(OptionError, match="copying is for EAGLE-3 heads"):
        with_copying_heads(one, model, teacher_of(model), [Sample((1, 2, 3))])
