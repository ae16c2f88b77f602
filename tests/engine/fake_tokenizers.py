"""Small Transformers tokenizers of each kind that turns ids into text in its own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

END = "<|end|>"


def word_tokenizer(size: int = 64) -> PreTrainedTokenizerBase:
    """Id i is the text "w{i}", with nothing between words; the last id is END."""
    return text_tokenizer([f"w{i}" for i in range(size - 1)])


def text_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerBase:
    """Id i is `texts[i]`, whatever it is; the id after the last is END."""
    # A text may stand for several ids, a vocabulary entry may not: the decoder drops the number.
    vocab = {f"{i}\x00{text}": i for i, text in enumerate(texts)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=next(iter(vocab))))
    number = decoders.Replace(Regex(r"[0-9]+\x00"), "")
    tokenizer.decoder = decoders.Sequence([number, decoders.Fuse()])
    return _wrap(tokenizer)


def byte_tokenizer(merged: Sequence[bytes] = ()) -> PreTrainedTokenizerBase:
    """A GPT-2 style tokenizer: id b is the byte b, ids from 256 on are `merged`, then END."""
    letters = byte_letters()
    words = ["".join(letters[byte] for byte in word) for word in merged]
    vocab = {word: i for i, word in enumerate([*letters, *words])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.decoder = decoders.ByteLevel()
    return _wrap(tokenizer)


def sentencepiece_tokenizer(pieces: Sequence[str] = ()) -> PreTrainedTokenizerBase:
    """A Llama style tokenizer: id b is the byte-fallback token of b, then `pieces`, then END."""
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {name: i for i, name in enumerate([*names, *pieces])}
    tokenizer = Tokenizer(models.BPE(vocab, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return _wrap(tokenizer)


def byte_letters() -> list[str]:
    """Return the printable letter that stands for each byte in a byte-level vocabulary."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    letters = [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]
    assert set(letters) == set(ByteLevel.alphabet())
    return letters


def _wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerBase:
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    build: Callable[..., PreTrainedTokenizerBase] = PreTrainedTokenizerFast  # has no annotations
    return build(tokenizer_object=tokenizer, eos_token=END)
