"""Drafted text is cut into the tokens that the target would say after those it has said."""

from __future__ import annotations

import pytest

from outrider.drafters.plain_encoder import PlainEncoder
from outrider.drafters.retokenizer import Retokenizer
from outrider.drafters.spelling import spell
from support.vocabularies import STRANGE, TEXT, Kind, vocabulary


def retokenizer(kind: Kind, num_ids: int | None = None) -> Retokenizer:
    tokenizer = vocabulary(kind)
    return Retokenizer(spell(tokenizer), PlainEncoder(tokenizer), num_ids or len(tokenizer))


@pytest.mark.parametrize("kind", ["bytes", "other bytes", "llama"])
def test_a_text_goes_on_as_its_tokenizer_cuts_it_wherever_it_stands(kind: Kind) -> None:
    found = retokenizer(kind)
    tokens = found.encoder.encode(f"{TEXT}{STRANGE}").ids
    words = [found.spelling.of(token) or b"" for token in tokens]
    for place in range(len(tokens)):
        data = b"".join(words[place:])
        after = found.go_on(tokens[max(0, place - 16) : place], data)
        assert after.ids == tokens[place:]
        assert after.ends == [sum(map(len, words[place : i + 1])) for i in range(place, len(words))]


@pytest.mark.parametrize("kind", ["bytes", "other bytes", "llama"])
def test_wherever_a_text_is_parted_what_is_proposed_spells_its_rest(kind: Kind) -> None:
    """Also within a word, and within a character: byte by byte to its end."""
    found = retokenizer(kind)
    whole = "the lazy dogs 犬🙂".encode()
    for place in range(1, len(whole)):
        before = [found.spelling.byte_ids[byte] for byte in whole[:place]]
        after = found.go_on(before[-16:], whole[place:])
        assert b"".join(found.spelling.of(token) or b"" for token in after.ids) == whole[place:]
        assert after.ends[-1] == len(whole) - place


def test_a_token_that_would_reach_over_the_end_of_the_text_is_parted_there() -> None:
    """The tokenizer has " dog" in one; behind " d" comes what is left of it."""
    ids, found = vocabulary("bytes").get_vocab(), retokenizer("bytes")
    after = found.go_on([ids["Ġ"], ids["d"]], b"og and")
    assert ids["Ġdog"] not in after.ids
    assert b"".join(found.spelling.of(token) or b"" for token in after.ids) == b"og and"


def test_what_is_no_whole_character_is_left_out() -> None:
    found = retokenizer("bytes")
    whole = "dog 犬".encode()
    for cut in (1, 2):
        after = found.go_on([], whole[:-cut])
        assert b"".join(found.spelling.of(token) or b"" for token in after.ids) == b"dog "
    assert found.go_on([], b"\xe7").ids == []
    assert found.go_on([], b"dog\xff and").ids == found.go_on([], b"dog").ids


def test_broken_bytes_before_do_not_matter() -> None:
    found = retokenizer("bytes")
    broken = [found.spelling.byte_ids[0xE7], found.spelling.byte_ids[0x8A]]
    assert found.go_on(broken, b" and").ids == found.encoder.encode(" and").ids
    # They may also be the beginning of the first character drafted.
    assert found.go_on(broken, b"\xac and").ids[0] == found.spelling.byte_ids[0xAC]


def test_without_single_bytes_nothing_is_proposed_within_a_character() -> None:
    found = retokenizer("unigram")
    assert found.go_on([], b"\xac and").ids == []
    dog = found.encoder.encode(" dog").ids
    assert found.go_on(dog, b" and").ids == found.encoder.encode(" and").ids


def test_nothing_is_proposed_from_a_token_on_that_the_target_does_not_have() -> None:
    unigram = retokenizer("unigram")
    after = unigram.go_on([], "a dog 🦊 and".encode())
    assert vocabulary("unigram").unk_token_id not in after.ids
    assert b"".join(unigram.spelling.of(token) or b"" for token in after.ids).strip() == b"a dog"
    few = retokenizer("bytes", 300)
    assert all(token < 300 for token in few.go_on([], b"the lazy dog").ids)


def test_no_text_is_no_token() -> None:
    found = retokenizer("bytes")
    assert found.go_on(found.encoder.encode("dog").ids, b"").ids == []
