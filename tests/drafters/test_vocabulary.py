"""Vocabularies are compared by what each id means, not by their sizes."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from outrider.drafters.vocabulary import HasVocabulary, VocabularyMatch, compare_vocabularies
from outrider.errors import VocabularyMismatchError


class Words:
    """A tokenizer whose id i is the text `w{i}`, but for the ids given."""

    def __init__(self, size: int, **other: int) -> None:
        self._vocab = {f"w{i}": i for i in range(size) if i not in other.values()} | other

    def get_vocab(self) -> dict[str, int]:
        return self._vocab


@pytest.mark.parametrize("draft_rows", [60, 64, 72])
def test_padding_makes_no_difference_and_is_never_drafted(draft_rows: int) -> None:
    """VOCAB-1."""
    match = compare_vocabularies(Words(60), Words(60), 64, draft_rows)
    assert match == VocabularyMatch(60, 64, draft_rows, is_checked=True)


def test_equal_sizes_do_not_make_vocabularies_equal() -> None:
    """VOCAB-2."""
    swapped = Words(64, w11=10, w10=11)
    with pytest.raises(VocabularyMismatchError) as caught:
        compare_vocabularies(Words(64), swapped, 64, 64)
    assert str(caught.value) == (
        "the drafter's vocabulary is not the target's: "
        "token id 10 is 'w10' to the target and 'w11' to the drafter"
    )


def test_ids_beyond_a_smaller_draft_head_are_never_drafted() -> None:
    """VOCAB-8."""
    assert compare_vocabularies(Words(64), Words(64), 64, 48).shared_ids == 48


def test_ids_beyond_a_smaller_target_head_are_never_drafted() -> None:
    assert compare_vocabularies(Words(64), Words(64), 40, 64).shared_ids == 40


@pytest.mark.parametrize(("target", "drafter"), [(50, 60), (60, 50)])
def test_one_vocabulary_may_go_on_where_the_other_ends(target: int, drafter: int) -> None:
    assert compare_vocabularies(Words(target), Words(drafter), 64, 64).shared_ids == 50


def test_a_hole_below_the_last_common_id_is_a_difference() -> None:
    holed = Words(64)
    del holed.get_vocab()["w7"]
    with pytest.raises(
        VocabularyMismatchError, match="token id 7 is 'w7' to the target and no token to the draft"
    ):
        compare_vocabularies(Words(64), holed, 64, 64)
    assert compare_vocabularies(holed, holed, 64, 64).shared_ids == 64


def test_vocabularies_with_nothing_in_common_share_nothing() -> None:
    assert compare_vocabularies(Words(0), Words(8), 8, 8).shared_ids == 0


def test_without_tokenizers_only_the_rows_count_and_the_match_says_so() -> None:
    match = compare_vocabularies(None, Words(64), 64, 48)
    assert match == VocabularyMatch(48, 64, 48, is_checked=False)
    assert not compare_vocabularies(Words(64), None, 64, 64).is_checked


def test_added_tokens_of_real_tokenizers_are_compared() -> None:
    make: Any = PreTrainedTokenizerFast  # its constructor is untyped

    def tokenizer(*added: str) -> HasVocabulary:
        words = Tokenizer(WordLevel({f"w{i}": i for i in range(8)}, unk_token="w0"))
        wrapped: PreTrainedTokenizerFast = make(tokenizer_object=words)
        wrapped.add_tokens(list(added))
        return wrapped

    assert compare_vocabularies(tokenizer("<a>"), tokenizer("<a>"), 16, 16).shared_ids == 9
    assert compare_vocabularies(tokenizer("<a>", "<b>"), tokenizer("<a>"), 16, 16).shared_ids == 9
    with pytest.raises(VocabularyMismatchError, match=r"token id 8 is '<a>'.* and '<b>' to"):
        compare_vocabularies(tokenizer("<a>"), tokenizer("<b>"), 16, 16)
