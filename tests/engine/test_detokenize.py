from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, cast

import pytest
from fake_tokenizers import (
    END,
    byte_tokenizer,
    sentencepiece_tokenizer,
    text_tokenizer,
    word_tokenizer,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ByT5Tokenizer, PreTrainedTokenizerBase

from outrider.engine.detokenize import Detokenizer

BROKEN = "\ufffd"
unhurried = settings(deadline=None, max_examples=80)
SAMPLE = "é漢字🙂 naïve"
# Tokens that begin and end in the middle of characters, as byte-level vocabularies have them.
MERGED = [b"\x82\xac\xe2", b"\xf0\x9f", b"\x98\x80 ", b"ab", b"\xe2\x82", b"\xac\xf0", b"\x80\x80"]
PIECES = ["▁", "▁Hello", "lo", "▁▁", "é", "."]


def pieces(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [detokenizer.push(token) for token in ids]


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    text = tokenizer.decode(list(ids), skip_special_tokens=True)
    assert isinstance(text, str)
    return text


@unhurried
@given(st.text(max_size=20))
def test_every_character_is_whole_and_comes_with_its_last_byte(text: str) -> None:
    """SERVE-5: characters split over tokens are never shown broken, and lose nothing."""
    ids = list(text.replace(BROKEN, "").encode())
    shown = ""
    for count, piece in enumerate(pieces(byte_tokenizer(), ids), start=1):
        shown += piece
        assert shown == bytes(ids[:count]).decode(errors="ignore")


@unhurried
@given(st.lists(st.integers(0, 255 + len(MERGED))))
def test_joined_pieces_are_the_whole_decoded_text_for_any_bytes(ids: list[int]) -> None:
    tokenizer = byte_tokenizer(MERGED)
    whole, joined = decode(tokenizer, ids), "".join(pieces(tokenizer, ids))
    assert whole.startswith(joined)
    assert whole[len(joined) :] in ("", BROKEN, 2 * BROKEN, 3 * BROKEN)


@unhurried
@given(st.lists(st.sampled_from([0x41, *range(0x80, 0x84), 0xE2, 0xF0, 0x9F]), max_size=60))
def test_broken_bytes_in_any_number_do_not_spoil_what_follows(ids: list[int]) -> None:
    tokenizer = byte_tokenizer(MERGED)
    assert "".join(pieces(tokenizer, [*ids, *b" ok"])) == decode(tokenizer, [*ids, *b" ok"])


EURO = [0xE2, 0x82, 0xAC]


@unhurried
@given(st.lists(st.sampled_from([EURO, [0x41], *([256 + i] for i in range(len(PIECES) + 1))])))
def test_byte_fallback_tokens_join_to_the_whole_decoded_text(groups: list[list[int]]) -> None:
    tokenizer, ids = sentencepiece_tokenizer(PIECES), list(chain.from_iterable(groups))
    assert "".join(pieces(tokenizer, ids)) == decode(tokenizer, ids)


@unhurried
@given(st.lists(st.sampled_from([*EURO, 0x41, 257, 258])))
def test_an_invalid_byte_run_spoils_nothing_after_it(ids: list[int]) -> None:
    # Such a decoder shows a run as broken that it showed as text before its last bytes came.
    assert "".join(pieces(sentencepiece_tokenizer(PIECES), [*ids, 258, 257])).endswith("lo Hello")


def test_an_invalid_byte_after_shown_text_shows_one_broken_character() -> None:
    ids = [*EURO, 0x80, 257]
    assert "".join(pieces(sentencepiece_tokenizer(PIECES), ids)) == f"€{BROKEN} Hello"


@pytest.mark.parametrize(
    "tokenizer",
    [byte_tokenizer(), sentencepiece_tokenizer(), cast(PreTrainedTokenizerBase, ByT5Tokenizer())],
    ids=["byte-level", "byte-fallback", "slow"],
)
def test_an_incomplete_character_at_the_end_is_dropped(tokenizer: PreTrainedTokenizerBase) -> None:
    shift = 3 if isinstance(tokenizer, ByT5Tokenizer) else 0
    ids = [byte + shift for byte in f"{SAMPLE}🙂".encode()]
    assert "".join(pieces(tokenizer, ids)) == f"{SAMPLE}🙂"
    assert "".join(pieces(tokenizer, ids[:-1])) == SAMPLE


def test_spaces_of_sentencepiece_tokenizers_are_kept_inside_the_text() -> None:
    ids = [257, 258, 257, 256, 257, 259, 257]
    expected = ["Hello", "lo", " Hello", " ", " Hello", "  ", " Hello"]
    assert pieces(sentencepiece_tokenizer(PIECES), ids) == expected


def test_text_that_goes_on_after_a_prompt_keeps_its_leading_space() -> None:
    detokenizer = Detokenizer(sentencepiece_tokenizer(PIECES), after=[257, 258] * 50)
    assert detokenizer.push(257) == " Hello"


def test_special_tokens_have_no_text_and_leave_the_text_around_them_alone() -> None:
    tokenizer = sentencepiece_tokenizer(PIECES)
    end = 256 + len(PIECES)
    assert tokenizer.convert_ids_to_tokens(end) == END
    for run in (1, 100):
        assert "".join(pieces(tokenizer, [257, *[end] * run, 257])) == "Hello Hello"


def test_words_come_one_by_one() -> None:
    assert pieces(word_tokenizer(), [1, 2, 3]) == ["w1", "w2", "w3"]


def test_ids_beyond_the_tokenizer_have_no_text() -> None:
    assert pieces(word_tokenizer(8), [1, 900, 2]) == ["w1", "", "w2"]


@pytest.mark.parametrize(
    "ids",
    [[0x41], [0x80], [0xE2], [256 + len(MERGED)], [256], [0xE2, 256], [0x41, 0x80]],
    ids=["text", "broken", "incomplete", "special", "spanning", "spanning-whole", "mixed"],
)
def test_a_decode_looks_at_a_bounded_number_of_ids(
    ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = byte_tokenizer(MERGED)
    original, lengths = tokenizer.decode, []

    def counting(token_ids: list[int], **options: Any) -> str | list[str]:
        lengths.append(len(token_ids))
        return original(token_ids, **options)

    monkeypatch.setattr(tokenizer, "decode", counting)
    pieces(tokenizer, ids * 300)
    assert max(lengths) < 40
    assert len(lengths) <= 2 * 300 * len(ids) + 1


def test_special_tokens_are_found_by_the_text_they_are_written_as() -> None:
    detokenizer = Detokenizer(text_tokenizer(["a", "b"]))
    assert detokenizer.special_id(END) == 2
    assert detokenizer.special_id("a") is None
