"""A byte-level tokenizer, and grammars that are followed with it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from outrider.sampling.grammar import Grammar
from outrider.sampling.grammar_state import GrammarState

MERGED = (b"pq", b"tr", b"ue", b"true", b'{"', b'":', b', "', b"null", b"cat", b"  ", b"\xc3\xa9")
EOS = 256 + len(MERGED)
TURN = EOS + 1
"""A second special token, as chat models end their turns with."""
VOCAB = TURN + 1


def byte_tokenizer(merged: Sequence[bytes] = MERGED) -> PreTrainedTokenizerBase:
    """Id b is the byte b, ids from 256 on are `merged`, then <|end|> and <|turn|>."""
    letters = _letters()
    words = ["".join(letters[byte] for byte in word) for word in merged]
    vocab = {word: i for i, word in enumerate([*letters, *words])}
    tokenizer = Tokenizer(models.BPE(vocab, _merges(words, vocab)))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    for name in ("<|end|>", "<|turn|>"):
        tokenizer.add_special_tokens([AddedToken(name, special=True)])
    build: Callable[..., PreTrainedTokenizerBase] = PreTrainedTokenizerFast  # has no annotations
    return build(tokenizer_object=tokenizer, eos_token="<|end|>")


@functools.cache
def shared_tokenizer() -> PreTrainedTokenizerBase:
    """Return the tokenizer, built once; tests do not change it."""
    return byte_tokenizer()


def bound(grammar: Grammar) -> Grammar:
    """Return a grammar for the shared tokenizer."""
    return grammar.bound(shared_tokenizer())


def begin(
    grammar: Grammar,
    *,
    eos: Iterable[int] = (EOS,),
    stops: Iterable[int] = (),
    vocab_size: int = VOCAB,
) -> GrammarState:
    """Return where a request with a grammar begins."""
    compiled = bound(grammar).compiled
    assert compiled is not None
    return compiled.begin(eos, stops, vocab_size)


def allowed(state: GrammarState, path: Iterable[int] = ()) -> set[int] | None:
    """Return the tokens allowed after a path; None if it is refused itself."""
    mask = state.mask(tuple(path))
    if mask is None:
        return None
    return set(np.flatnonzero(np.unpackbits(mask, bitorder="little")).tolist())


def accepts(grammar: Grammar, text: str) -> bool:
    """Whether a text, byte by byte, belongs to a grammar."""
    return allowed(begin(grammar), (*text.encode(), EOS)) is not None


def _letters() -> list[str]:
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def _merges(words: Sequence[str], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Return a merge for each word, of two parts that are in the vocabulary."""
    return [
        next((w[:i], w[i:]) for i in range(len(w) - 1, 0, -1) if {w[:i], w[i:]} <= vocab.keys())
        for w in words
        if any({w[:i], w[i:]} <= vocab.keys() for i in range(1, len(w)))
    ]
