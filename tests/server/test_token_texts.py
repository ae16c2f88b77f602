from __future__ import annotations

import pytest
from serving import END, byte_level_tokenizer

from outrider.server.deltas import Delta, Progress
from outrider.server.logprobs import chat_logprobs, completion_logprobs
from outrider.server.origins import Origins, Piece
from outrider.server.token_texts import TokenTexts
from outrider.types import Source, Token, TokenLogprobs

TEXT = "aé漢🙂 b"


def ids(text: str) -> list[int]:
    return list(byte_level_tokenizer().encode(text, add_special_tokens=False))


def delta(*tokens: tuple[int, Source], text: str = "", drafter: str | None = None) -> Delta:
    made = tuple(Token(token, source) for token, source in tokens)
    return Delta(None, text, made, None, Progress(), drafter)  # type: ignore[arg-type]


def test_bytes_of_tokens_add_up_to_the_text() -> None:
    texts = TokenTexts(byte_level_tokenizer())
    spelt = bytes(byte for token in ids(TEXT) for byte in texts.bytes(token))
    assert spelt.decode() == TEXT


def test_a_special_token_is_shown_as_it_is_written() -> None:
    tokenizer = byte_level_tokenizer()
    texts = TokenTexts(tokenizer)
    (end,) = tokenizer.encode(END, add_special_tokens=False)
    assert texts.text(end) == END
    assert bytes(texts.bytes(end)).decode() == END


def test_a_token_without_a_tokenizer_is_its_id() -> None:
    assert TokenTexts(None).text(7) == "token_id:7"
    assert bytes(TokenTexts(None).bytes(7)) == b"token_id:7"


def test_chances_that_are_none_have_a_number_in_json() -> None:
    texts = TokenTexts(byte_level_tokenizer())
    token = Token(5, "plain", TokenLogprobs(float("-inf"), ((6, -0.5), (7, float("-inf")))))
    (entry,) = chat_logprobs([token], texts)["content"]
    assert entry["logprob"] == -9999.0
    assert [top["logprob"] for top in entry["top_logprobs"]] == [-0.5, -9999.0]
    found = completion_logprobs([token], [3], texts)
    assert found["token_logprobs"] == [-9999.0] and found["text_offset"] == [3]
    assert found["top_logprobs"] == [
        {texts.text(6): -0.5, texts.text(7): -9999.0, texts.text(5): -9999.0}
    ]


def test_of_tokens_with_one_text_the_likeliest_counts() -> None:
    texts = TokenTexts(byte_level_tokenizer())
    broken = [token for token in range(256) if texts.text(token) == "\ufffd"][:2]
    record = TokenLogprobs(-3.0, ((broken[0], -1.0), (broken[1], -2.0)))
    found = completion_logprobs([Token(broken[1], "plain", record)], [0], texts)
    assert found["top_logprobs"] == [{"\ufffd": -1.0}]


def test_each_piece_is_of_the_token_that_completes_its_characters() -> None:
    origins = Origins(byte_level_tokenizer())
    a, first, second = ids("aé")
    offsets = origins.follow(
        delta((a, "accepted"), (first, "accepted"), (second, "bonus"), drafter="suffix")
    )
    assert offsets == [0, 1, 1]
    assert list(origins.pieces("aé")) == [
        Piece("a", "accepted", "suffix"),
        Piece("é", "bonus", None),
    ]


@pytest.mark.parametrize("shown", [("", "abc"), ("a", "bc"), ("ab", ""), ("abc", "")])
def test_text_that_is_held_back_keeps_its_origin(shown: tuple[str, str]) -> None:
    origins = Origins(byte_level_tokenizer())
    a, b, c = ids("abc")
    pieces: list[Piece] = []
    origins.follow(delta((a, "plain")))
    pieces += origins.pieces(shown[0][:1])
    origins.follow(delta((b, "accepted"), (c, "recovered"), drafter="ngram"))
    pieces += origins.pieces(shown[0][1:])
    pieces += origins.pieces(shown[1])
    said = "".join(shown)
    sources = {"a": ("plain", None), "b": ("accepted", "ngram"), "c": ("recovered", None)}
    assert [(p.text, p.source, p.drafter) for p in pieces] == [(x, *sources[x]) for x in said]
