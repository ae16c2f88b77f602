"""A transcript is what the draft model's tokenizer makes of the text, however it came."""

from __future__ import annotations

from random import Random

import pytest

from outrider.drafters.plain_encoder import PlainEncoder
from outrider.drafters.spelling import spell
from outrider.drafters.transcript import Scribe, Transcript
from outrider.drafters.translation import translate
from support.vocabularies import SENTENCES, STRANGE, TEXT, Kind, vocabulary

LONG = " ".join(SENTENCES * 2)
PAIRS: list[tuple[Kind, Kind]] = [
    ("bytes", "other bytes"),
    ("bytes", "llama"),
    ("llama", "bytes"),
    ("unigram", "llama"),
    ("llama", "unigram"),
]


def scribe(target: Kind, draft: Kind) -> Scribe:
    pair = vocabulary(target), vocabulary(draft)
    found = translate(*pair, len(pair[0]), len(pair[1]))
    return Scribe(
        spelling=found.target,
        special=dict(found.special),
        byte_ids=found.draft.byte_ids,
        encoder=PlainEncoder(pair[1]),
        num_ids=len(pair[1]),
        target_encoder=PlainEncoder(pair[0]),
    )


def written(pair: tuple[Kind, Kind], tokens: list[int]) -> list[int]:
    transcript = Transcript(scribe(*pair))
    transcript.extend(tokens)
    return transcript.since(0)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_short_text_is_cut_as_the_draft_models_tokenizer_cuts_it(pair: tuple[Kind, Kind]) -> None:
    """VOCAB-3: with its own beginning, once, and a space before it if it is one for spaces."""
    text = "The lazy fox sleeps"
    assert written(pair, vocabulary(pair[0]).encode(text)) == vocabulary(pair[1]).encode(text)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_text_that_comes_in_pieces_spells_the_same_as_a_whole_one(
    pair: tuple[Kind, Kind], seed: int
) -> None:
    """And what was settled once never changes."""
    target, draft = (vocabulary(kind) for kind in pair)
    spelling, random = spell(draft), Random(seed)
    tokens = target.encode(LONG)
    transcript, place = Transcript(scribe(*pair)), 0
    settled: list[int] = []
    while place < len(tokens):
        step = random.choice([1, 1, 2, 5, 30])
        transcript.extend(tokens[place : place + step])
        place += step
        now = transcript.since(0)
        assert now[: len(settled)] == settled
        settled = now[: transcript.settled]
        assert transcript.length == len(now)
        assert transcript.since(transcript.settled) == now[transcript.settled :]
        assert len(now) - len(settled) <= 3 * 16  # what is cut again is bounded
    found = b"".join(spelling.of(token) or b"?" for token in transcript.since(0)).decode()
    whole = b"".join(spelling.of(token) or b"?" for token in draft.encode(LONG)).decode()
    assert found.replace("?", "") == whole.replace("?", "")
    assert transcript.settled > 50


@pytest.mark.parametrize("draft", ["other bytes", "wordpiece"])
def test_what_is_settled_was_cut_where_the_tokenizer_would_have_cut_it(draft: Kind) -> None:
    """Words are never parted for good: piece by piece it is what a whole text is cut into.

    The rest of a word is another piece by itself where pieces know where words begin.
    """
    transcript = Transcript(scribe("bytes", draft))
    for token in vocabulary("bytes").encode(LONG):
        transcript.extend([token])
    assert transcript.settled > 50
    assert transcript.since(0) == vocabulary(draft).encode(LONG)


def test_words_that_are_finished_later_are_cut_anew() -> None:
    """The target says in two tokens what is one to the draft model."""
    ids = vocabulary("other bytes").get_vocab()
    transcript = Transcript(scribe("other bytes", "bytes"))
    transcript.extend([ids["Ġ"], ids["d"], ids["o"]])
    before = transcript.since(0)
    transcript.extend([ids["g"]])
    assert transcript.since(0) == [vocabulary("bytes").get_vocab()["Ġdog"]]
    assert before != transcript.since(0)[: len(before)]


def test_special_tokens_both_have_are_translated_and_others_left_out() -> None:
    ours, theirs = (vocabulary(kind).get_vocab() for kind in ("bytes", "other bytes"))
    tokens = [ours[name] for name in ("<|turn|>", "a", "<|end|>", "<|begin|>", "b")]
    expected = [theirs[name] for name in ("<|turn|>", "a", "<|stop|>", "b")]
    assert written(("bytes", "other bytes"), tokens) == expected


def test_a_beginning_of_the_targets_is_not_added_to_that_of_the_draft_model() -> None:
    """VOCAB-3: neither by the target's own token for it, nor again in the rounds that follow."""
    llama = vocabulary("llama")
    transcript = Transcript(scribe("llama", "llama"))
    for token in llama.encode("The lazy fox"):
        transcript.extend([token])
        assert transcript.since(0).count(1) == 1
    assert transcript.since(0) == llama.encode("The lazy fox")


def test_a_character_that_is_not_complete_stands_there_in_bytes() -> None:
    tokens = vocabulary("other bytes").encode("x🙂")
    llama = vocabulary("llama").get_vocab()
    for pieces in range(1, len(tokens) - 1):
        transcript = Transcript(scribe("other bytes", "llama"))
        transcript.extend(tokens[: pieces + 1])
        held = b"".join(spell(vocabulary("other bytes")).of(one) or b"" for one in tokens[1:])
        so_far = b"".join(
            spell(vocabulary("other bytes")).of(one) or b"" for one in tokens[1 : pieces + 1]
        )
        assert held.startswith(so_far)
        assert transcript.can_go_on
        assert transcript.since(0)[-len(so_far) :] == [llama[f"<0x{byte:02X}>"] for byte in so_far]
    assert written(("other bytes", "llama"), tokens) == vocabulary("llama").encode("x🙂")


def test_without_single_bytes_a_text_that_ends_within_a_character_cannot_go_on() -> None:
    tokens = vocabulary("other bytes").encode("The 🙂 fox")
    place = next(
        i for i, one in enumerate(tokens) if not _is_text(spell(vocabulary("other bytes")).of(one))
    )
    transcript = Transcript(scribe("other bytes", "unigram"))
    transcript.extend(tokens[: place + 1])
    assert not transcript.can_go_on
    transcript.extend(tokens[place + 1 :])
    assert transcript.can_go_on
    assert transcript.since(0) == vocabulary("unigram").encode("The 🙂 fox")


def _is_text(word: bytes | None) -> bool:
    try:
        return (word or b"").decode() != ""
    except UnicodeDecodeError:
        return False


def test_bytes_that_make_no_character_do_not_stop_the_text() -> None:
    """A model may say them; a special token, or whatever does not fit them, ends them."""
    ids = vocabulary("bytes").get_vocab()
    broken = spell(vocabulary("bytes")).byte_ids[0xE3]
    for rest in ([ids["a"]], [ids["<|turn|>"], ids["a"]]):
        transcript = Transcript(scribe("bytes", "other bytes"))
        transcript.extend([ids["a"], broken])
        transcript.extend(rest)
        assert transcript.can_go_on
        assert transcript.since(0)[-1] == vocabulary("other bytes").get_vocab()["a"]


def test_text_that_the_draft_model_does_not_know_is_its_unknown_token() -> None:
    unigram = vocabulary("unigram")
    tokens = vocabulary("bytes").encode(f"The{STRANGE} fox")
    found = written(("bytes", "unigram"), tokens)
    assert unigram.unk_token_id in found
    assert found == unigram.encode(f"The{STRANGE} fox")


def test_ids_that_the_draft_model_does_not_have_are_left_out() -> None:
    one = scribe("bytes", "other bytes")
    few = Transcript(
        Scribe(one.spelling, one.special, one.byte_ids, one.encoder, 280, one.target_encoder)
    )
    few.extend(vocabulary("bytes").encode(TEXT))
    assert few.since(0) and max(few.since(0)) < 280


def test_no_text_at_all_is_nothing_to_go_on_from() -> None:
    assert not Transcript(scribe("llama", "bytes")).can_go_on
    assert Transcript(scribe("bytes", "llama")).can_go_on  # from its own beginning
