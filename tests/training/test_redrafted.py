"""A head whose vocabulary changes says of the tokens that it knew what it said before."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from outrider.errors import OptionError
from outrider.heads.eagle import EagleHead
from outrider.training.initial import redrafted
from outrider.training.vocabulary import DraftVocabulary
from support.heads import eagle_config
from support.seeded import eagle_tensors
from support.tiny import VOCAB, shared_model

KNOWN = [41, 7, 3, 60, 12, 28]
"""Ids in no order: published heads have them so, too."""


def vocabulary(ids: list[int]) -> DraftVocabulary:
    marks = torch.zeros(VOCAB, dtype=torch.bool)
    marks[ids] = True
    return DraftVocabulary(marks.nonzero().flatten() - torch.arange(len(ids)), marks)


def head_of(ids: list[int], **fields: Any) -> EagleHead:
    config = eagle_config(3, draft_vocab_size=len(ids), **fields)
    marks = torch.zeros(VOCAB, dtype=torch.bool)
    marks[ids] = True
    maps = {"d2t": torch.tensor(ids) - torch.arange(len(ids)), "t2d": marks}
    return EagleHead.load(config, eagle_tensors(config) | maps)


@pytest.mark.parametrize("ids", [[3, 12, 60], [7, 41], sorted([*KNOWN, 1, 50])])
@torch.no_grad()
def test_rows_of_known_ids_are_kept_and_those_of_others_are_the_targets(ids: list[int]) -> None:
    head, model = head_of(KNOWN), shared_model()
    found = redrafted(head, model, vocabulary(ids))
    assert found.target_ids is not None and found.target_ids.tolist() == ids
    assert found.lm_head is not None and head.lm_head is not None
    get_output: Any = model.get_output_embeddings
    for row, token in zip(found.lm_head.weight, ids, strict=True):
        place = KNOWN.index(token) if token in KNOWN else None
        own = get_output().weight[token] if place is None else head.lm_head.weight[place]
        assert torch.equal(row, own.float())


@torch.no_grad()
def test_all_but_the_output_layer_stays_as_it_was() -> None:
    head = head_of(KNOWN)
    found = redrafted(head, shared_model(), vocabulary([3, 7]))
    changed = {"lm_head.weight", "d2t", "t2d"}
    before = head.state_dict()
    assert set(found.state_dict()) == set(before)
    for name, tensor in found.state_dict().items():
        assert name in changed or torch.equal(tensor, before[name].float()), name


def test_a_head_that_speaks_with_the_targets_output_layer_is_refused() -> None:
    config = eagle_config(3, draft_vocab_size=VOCAB, owns_head=False)
    head = EagleHead.load(config, eagle_tensors(config))
    with pytest.raises(OptionError, match="no output layer of its own"):
        redrafted(head, shared_model(), vocabulary([3, 7]))
