"""What tokens spell, joined, is the text they were cut from, for every kind of tokenizer."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models

from outrider.drafters.plain_encoder import PlainEncoder
from outrider.drafters.spelling import require_fast, special_ids, spell
from outrider.errors import VocabularyMismatchError
from support.files import word_tokenizer
from support.vocabularies import STRANGE, TEXT, Kind, vocabulary, wrapped


@pytest.mark.parametrize("kind", ["bytes", "other bytes", "llama"])
def test_with_bytes_to_fall_back_on_every_text_is_spelled(kind: Kind) -> None:
    spelling = spell(vocabulary(kind))
    for text in (TEXT, STRANGE, "  two  spaces\n\n", "\x00\u200b"):
        ids = PlainEncoder(vocabulary(kind)).encode(text).ids
        assert b"".join(spelling.of(token) or b"?" for token in ids) == text.encode()
    assert len(spelling.byte_ids) == 256


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_without_them_what_is_unknown_spells_nothing(kind: Kind) -> None:
    tokenizer = vocabulary(kind)
    spelling = spell(tokenizer)
    ids = PlainEncoder(tokenizer).encode(" The lazy dog 🦊 sleeps").ids
    unknown = tokenizer.unk_token_id
    assert unknown in ids and spelling.of(unknown or 0) is None
    known = b"".join(spelling.of(token) or b"" for token in ids)
    assert known.replace(b" ", b"") == b"Thelazydogsleeps"


def test_tokens_that_end_within_a_character_spell_its_bytes() -> None:
    spelling = spell(vocabulary("other bytes"))
    ids = PlainEncoder(vocabulary("other bytes")).encode("🙂").ids
    words = [spelling.of(token) or b"" for token in ids]
    assert len(words) > 1 and b"".join(words) == "🙂".encode()
    with pytest.raises(UnicodeDecodeError):
        words[0].decode()


def test_special_tokens_and_ids_of_no_token_spell_nothing() -> None:
    tokenizer = vocabulary("bytes")
    spelling = spell(tokenizer)
    assert len(special_ids(tokenizer)) == 3
    assert all(spelling.of(token) is None for token in special_ids(tokenizer))
    assert spelling.of(-1) is None and spelling.of(len(tokenizer)) is None


def test_added_tokens_that_are_not_special_stand_for_themselves() -> None:
    backend = Tokenizer.from_str(vocabulary("bytes").backend_tokenizer.to_str())
    backend.add_tokens([AddedToken("<é>", special=False)])
    tokenizer = wrapped(backend)
    added = len(tokenizer) - 1
    assert spell(tokenizer).of(added) == "<é>".encode()


def test_a_byte_to_fall_back_on_never_stands_for_a_character_that_has_a_piece() -> None:
    """Both spell the same; the piece is what the tokenizer would say."""
    tokenizer = vocabulary("llama")
    spelling = spell(tokenizer)
    vocab = tokenizer.get_vocab()
    assert spelling.of(vocab["<0x65>"]) == spelling.of(vocab["e"]) == b"e"
    assert spelling.ids[b"e"] == spelling.byte_ids[ord("e")] == vocab["e"]
    assert spelling.byte_ids[0xFF] == vocab["<0xFF>"]


def test_tokens_of_any_other_kind_spell_what_they_add_to_a_text() -> None:
    assert spell(word_tokenizer()).of(5) == b" w5"
    pieces = vocabulary("wordpiece")
    spelling = spell(pieces)
    vocab = pieces.get_vocab()
    inner = next(word for word in vocab if word.startswith("##"))
    assert spelling.of(vocab[inner]) == inner.removeprefix("##").encode()


def test_a_tokenizer_without_parts_to_look_at_is_refused() -> None:
    class Slow:
        pass

    slow: Any = Slow()
    with pytest.raises(VocabularyMismatchError, match="Slow is none of the fast tokenizers"):
        require_fast(slow)


# -- cutting text -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bytes", "llama", "unigram"])
def test_a_text_is_cut_with_nothing_added(kind: Kind) -> None:
    tokenizer, encoder = vocabulary(kind), PlainEncoder(vocabulary(kind))
    space = encoder.has_prefix(is_first=True)
    whole = tokenizer.encode(TEXT)
    assert [*encoder.beginning, *encoder.encode(f" {TEXT}" if space else TEXT).ids] == whole
    assert encoder.beginning == ((1,) if kind == "llama" else ())
    unspaced = encoder.encode("fox").ids
    assert b"".join(spell(tokenizer).of(token) or b"" for token in unspaced) == b"fox"


def test_where_a_tokenizer_puts_a_space_is_known() -> None:
    encoders = {kind: PlainEncoder(vocabulary(kind)) for kind in ("bytes", "llama", "unigram")}
    found = {kind: one.prefix for kind, one in encoders.items()}
    assert found == {"bytes": "never", "llama": "always", "unigram": "first"}
    assert encoders["unigram"].has_prefix(is_first=True)
    assert not encoders["unigram"].has_prefix(is_first=False)
    assert encoders["llama"].has_prefix(is_first=False)


def test_special_tokens_are_not_read_from_text() -> None:
    tokenizer = vocabulary("bytes")
    written = "<|end|>"
    assert tokenizer.encode(written) == [tokenizer.eos_token_id]
    ids = PlainEncoder(tokenizer).encode(written).ids
    assert not special_ids(tokenizer) & set(ids)
    assert tokenizer.encode(written) == [tokenizer.eos_token_id]  # its own ways are left alone


def test_a_tokenizer_that_cannot_be_copied_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = wrapped(Tokenizer(models.BPE({"a": 0}, [])))

    class Custom:
        def normalize(self, text: Any) -> None: ...

    from tokenizers.normalizers import Normalizer

    make: Any = Normalizer
    tokenizer.backend_tokenizer.normalizer = make.custom(Custom())
    with pytest.raises(VocabularyMismatchError, match="cannot be copied"):
        PlainEncoder(tokenizer)
