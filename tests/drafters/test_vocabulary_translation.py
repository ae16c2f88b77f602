"""Ids of two vocabularies are paired by what they spell, one to one."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.drafters.translation import Overlap, Translation, relate, translate
from outrider.drafters.vocabulary import VocabularyMatch
from outrider.errors import OptionError, VocabularyMismatchError
from support.files import word_tokenizer
from support.vocabularies import Kind, vocabulary

PAIRS: list[tuple[Kind, Kind]] = [
    ("bytes", "other bytes"),
    ("bytes", "llama"),
    ("llama", "unigram"),
]


def between(target: Kind, draft: Kind) -> Translation:
    pair = vocabulary(target), vocabulary(draft)
    return translate(*pair, len(pair[0]), len(pair[1]))


@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_shared_ids_spell_the_same_and_are_paired_once(target: Kind, draft: Kind) -> None:
    found = between(target, draft)
    ours, theirs = zip(*found.shared, strict=True)
    assert len(set(ours)) == len(set(theirs)) == len(found.shared) > 30
    for token, other in found.shared:
        assert found.target.of(token) == found.draft.of(other) is not None


def test_the_space_sign_of_either_kind_is_a_space() -> None:
    bytes_ids, llama_ids = (vocabulary(kind).get_vocab() for kind in ("bytes", "llama"))
    assert (bytes_ids["Ġdog"], llama_ids["▁dog"]) in between("bytes", "llama").shared


def test_special_tokens_are_paired_by_name_and_then_by_office() -> None:
    bytes_ids, others = (vocabulary(kind).get_vocab() for kind in ("bytes", "other bytes"))
    assert set(between("bytes", "other bytes").special) == {
        (bytes_ids["<|turn|>"], others["<|turn|>"]),
        (bytes_ids["<|end|>"], others["<|stop|>"]),
    }
    assert between("bytes", "wordpiece").special == (
        (bytes_ids["<|end|>"], vocabulary("wordpiece").get_vocab()["[SEP]"]),
    )


def test_ids_beyond_either_head_are_not_paired() -> None:
    """VOCAB-8."""
    pair = vocabulary("bytes"), vocabulary("other bytes")
    found = translate(*pair, 300, 280)
    ours, theirs = zip(*found.shared, *found.special, strict=True)
    assert max(ours) < 300 and max(theirs) < 280


def test_the_overlap_counts_tokens_that_have_text() -> None:
    assert between("bytes", "other bytes").overlap == Overlap(
        shared=len(between("bytes", "other bytes").shared),
        target_tokens=420,
        draft_tokens=330,
        ways=("tokens", "text"),
    )


def test_ids_that_mean_the_same_need_no_translation() -> None:
    pair = vocabulary("bytes"), vocabulary("bytes")
    assert relate(*pair, 423, 430) == VocabularyMatch(423, 423, 430, is_checked=True)
    assert isinstance(relate(*pair, 423, 423, "text"), Translation)  # unless a way is named
    assert isinstance(relate(vocabulary("llama"), vocabulary("bytes"), 519, 423), Translation)


def test_without_a_tokenizer_only_sizes_are_compared_and_no_way_can_be_had() -> None:
    assert relate(None, vocabulary("bytes"), 64, 64) == VocabularyMatch(64, 64, 64, False)
    with pytest.raises(OptionError, match="way is 'text', which needs both models' tokenizers"):
        relate(None, vocabulary("bytes"), 64, 64, "text")


def test_with_nothing_in_common_text_is_the_only_way() -> None:
    pair = word_tokenizer(), vocabulary("unigram")
    found = relate(*pair, 64, len(pair[1]))
    assert isinstance(found, Translation)
    assert found.overlap.ways == found.ways(None) == ("text",)
    with pytest.raises(OptionError, match=r"way is 'tokens', but .* have no token in common"):
        relate(*pair, 64, len(pair[1]), "tokens")


def test_what_cannot_be_translated_is_refused_with_the_first_id_that_differs() -> None:
    """VOCAB-2."""

    class Slow:
        def get_vocab(self) -> dict[str, int]:
            return {"w1": 0}

    slow: Any = Slow()
    with pytest.raises(
        VocabularyMismatchError, match=r"token id 0 is 'w0' .* and 'w1' .*; tokens cannot be trans"
    ):
        relate(word_tokenizer(), slow, 64, 64)
