from __future__ import annotations

from random import Random

import pytest
import torch

from outrider.checkpoints.tensors import require_tensors
from outrider.errors import OptionError
from outrider.heads.eagle import EagleHead
from outrider.training.base import Sample, batch_of
from outrider.training.vocabulary import coverage, draft_vocabulary
from support.heads import eagle_config
from support.seeded import eagle_tensors
from support.tiny import VOCAB

# Taught: 5 three times, 2 and 8 twice, 1 and 7 once; the prompt's 9 is not.
SAMPLES = [Sample((9, 9, 9, 9, 5, 5, 2, 8), 4), Sample((5, 2, 8, 7, 1))]


def test_offsets_and_marks_name_the_same_ids() -> None:
    """TRAIN-1: d2t holds how far above its draft id a target id lies."""
    found = draft_vocabulary(SAMPLES, 4, 10)
    assert found.ids.tolist() == [1, 2, 5, 8]
    assert found.d2t.tolist() == [1, 1, 3, 5]
    assert (torch.arange(4) + found.d2t).tolist() == found.t2d.nonzero().flatten().tolist()
    assert (found.d2t.dtype, found.t2d.dtype) == (torch.int64, torch.bool)


def test_a_head_with_these_maps_drafts_these_ids() -> None:
    config = eagle_config(3, draft_vocab_size=6)
    found = draft_vocabulary(SAMPLES, 6, VOCAB)
    tensors = eagle_tensors(config) | {"d2t": found.d2t, "t2d": found.t2d}
    require_tensors(config, tensors, "head")
    target_ids = EagleHead.load(config, tensors).target_ids
    assert target_ids is not None and target_ids.tolist() == found.ids.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_no_other_choice_covers_more(seed: int) -> None:
    random = Random(seed)
    ids = [tuple(random.randrange(random.randint(1, 20)) for _ in range(12)) for _ in range(9)]
    samples = [Sample(row, random.randrange(6)) for row in ids]
    taught = [token for sample in samples for token in sample.ids[sample.prompt_tokens :]]
    assert len(taught) == batch_of(samples).num_tokens
    shares = sorted((taught.count(token) for token in range(20)), reverse=True)
    for size in (1, 4, 20):
        found = draft_vocabulary(samples, size, 20)
        wanted = sum(shares[:size]) / len(taught)
        assert coverage(samples, found.ids, 20) == pytest.approx(wanted)


def test_ties_and_unseen_ids_go_to_the_lowest() -> None:
    assert draft_vocabulary(SAMPLES, 2, 10).ids.tolist() == [2, 5]
    found = draft_vocabulary(SAMPLES, 7, 10)
    assert found.ids.tolist() == [0, 1, 2, 3, 5, 7, 8]
    assert coverage(SAMPLES, found.ids, 10) == 1.0


def test_some_ids_are_always_there() -> None:
    found = draft_vocabulary(SAMPLES, 3, 10, always=(9, 0, 9))
    assert found.ids.tolist() == [0, 5, 9]
    assert coverage(SAMPLES, found.ids, 10) == pytest.approx(3 / 9)


def test_the_whole_vocabulary_needs_no_maps() -> None:
    found = draft_vocabulary(SAMPLES, 10, 10)
    assert not found.d2t.any() and found.t2d.all()


@pytest.mark.parametrize(
    ("samples", "size", "always", "message"),
    [
        (SAMPLES, 0, (), "has 0 ids: expected 1 to 10"),
        (SAMPLES, 11, (), "has 11 ids: expected 1 to 10"),
        (SAMPLES, 1, (3, 4), "has 1 ids: expected 2 to 10"),
        (SAMPLES, 3, (10,), "always holds id 10: expected 0 to 9"),
        ([Sample((4, 10))], 3, (), "the samples hold id 10: expected 0 to 9"),
        ([Sample((4, 5), 2)], 3, (), "hold no tokens to learn"),
        ([], 3, (), "hold no tokens to learn"),
    ],
)
def test_what_does_not_fit_is_refused(
    samples: list[Sample], size: int, always: tuple[int, ...], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        draft_vocabulary(samples, size, 10, always)
