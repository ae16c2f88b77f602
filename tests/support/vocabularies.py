"""Tokenizers of several kinds, learnt from a few sentences, for models that share none."""

from __future__ import annotations

import functools
import json
from typing import Any, Literal

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Metaspace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from outrider.drafters.foreign import ForeignDrafter
from outrider.drafters.spec import Way
from outrider.drafters.spelling import spell
from outrider.drafters.translation import translate
from outrider.targets.base import Target
from support.scripted import ScriptedTarget

Kind = Literal["bytes", "other bytes", "llama", "unigram", "sentencepiece", "wordpiece"]

SENTENCES = (
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on.",
    "Over the hills and far away the foxes are quicker than lazy dogs.",
    "L'été dernier, nous avons mangé des crêpes près de la forêt.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "速い茶色の狐は怠け者の犬を飛び越える。犬は眠る。",
    "def jump(over, dog):\n    return over + dog  # a comment\n",
)
TEXT = "The lazy fox sleeps over the hills.\n\tL'été: 犬は眠る, über 12 dogs!"
STRANGE = " Ω≈ç√ 🦊🙂 한국"
"""Characters that none of the sentences has."""


@functools.cache
def vocabulary(kind: Kind) -> PreTrainedTokenizerBase:
    """Return a tokenizer of a kind, made once: tests do not change it.

    "bytes" and "other bytes" are byte-level, the second with fewer merges and other special
    tokens; "llama" is SentencePiece's BPE with bytes to fall back on, "unigram" SentencePiece's
    other model with none: what it does not know is <unk>. "sentencepiece" is that model as it is
    mostly found: it reads text in a normal form, with a space behind every special token, and has
    bytes to fall back on.
    """
    match kind:
        case "bytes":
            return _byte_level(420, ("<|begin|>", "<|end|>", "<|turn|>"), ends="<|end|>")
        case "other bytes":
            return _byte_level(330, ("<|turn|>", "<|stop|>"), ends="<|stop|>")
        case "llama":
            return _llama()
        case "unigram":
            return _unigram()
        case "sentencepiece":
            return _sentencepiece()
        case "wordpiece":
            return _wordpiece()


def wrapped(backend: Tokenizer, **special: str) -> PreTrainedTokenizerBase:
    """Return a tokenizer as Transformers has them."""
    make: Any = PreTrainedTokenizerFast  # its constructor is untyped
    found: PreTrainedTokenizerBase = make(tokenizer_object=backend, **special)
    return found


def _byte_level(size: int, special: tuple[str, ...], ends: str) -> PreTrainedTokenizerBase:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    _train(backend, trainers.BpeTrainer(vocab_size=size, initial_alphabet=ByteLevel.alphabet()))
    backend.add_special_tokens([AddedToken(name, special=True) for name in special])
    return wrapped(backend, eos_token=ends)


def _llama() -> PreTrainedTokenizerBase:
    """Return what Llama 2 and its kin have: a space in front, bytes to fall back on, <s>."""
    learnt = Tokenizer(models.BPE())
    learnt.normalizer = _spaces()
    _train(learnt, trainers.BpeTrainer(vocab_size=260))
    content = _content(learnt)
    known = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words = [*known, *sorted(content["vocab"], key=content["vocab"].__getitem__)]
    backend = Tokenizer(
        models.BPE(
            {word: i for i, word in enumerate(words)},
            [tuple(pair) for pair in content["merges"]],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    backend.normalizer = _spaces()
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens([AddedToken(name, special=True) for name in known[:3]])
    backend.post_processor = TemplateProcessing(
        single="<s> $A", pair=None, special_tokens=[("<s>", 1)]
    )
    return wrapped(backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def _spaces() -> Any:
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def _unigram() -> PreTrainedTokenizerBase:
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.UnigramTrainer(
        vocab_size=150, unk_token="<unk>", special_tokens=["<unk>", "</s>", "<|turn|>"]
    )
    _train(backend, trainer)
    return wrapped(backend, eos_token="</s>", unk_token="<unk>")


def _sentencepiece() -> PreTrainedTokenizerBase:
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    backend.pre_tokenizer = Metaspace(prepend_scheme="always")
    special = ["<unk>", "<s>", "</s>"]
    _train(
        backend,
        trainers.UnigramTrainer(vocab_size=150, unk_token="<unk>", special_tokens=special),
    )
    description = json.loads(backend.to_str())
    words = description["model"]["vocab"]
    pieces = [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    description["model"] |= {
        "vocab": [*words[:3], *pieces, *words[3:]],
        "byte_fallback": True,
    }
    backend = Tokenizer.from_str(json.dumps(description))
    backend.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")]
    )
    backend.post_processor = TemplateProcessing(
        single="<s> $A", pair=None, special_tokens=[("<s>", 1)]
    )
    return wrapped(backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def _wordpiece() -> PreTrainedTokenizerBase:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    _train(backend, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "[SEP]"]))
    return wrapped(backend, eos_token="[SEP]", unk_token="[UNK]")


def _train(backend: Tokenizer, trainer: Any) -> None:
    trainer.show_progress = False
    backend.train_from_iterator(SENTENCES * 3, trainer)


def _content(backend: Tokenizer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(backend.to_str())["model"]
    return found


def speaker(kind: Kind, text: str, max_positions: int = 10_000) -> ScriptedTarget:
    """Return a model that goes on with a text, in its own tokens, from wherever a context stands.

    Next best after the token that its tokenizer would take is the longest other one that fits.
    """
    tokenizer = vocabulary(kind)
    spelling = spell(tokenizer)
    whole = f" {text}".encode()  # as pieces of SentencePiece spell it
    canonical: dict[int, int] = {}
    place = 1
    for token in tokenizer.encode(text, add_special_tokens=False):
        canonical[place] = token
        word = spelling.of(token) or b""
        place += len(word.removeprefix(b" ") if place == 1 else word)
    ends = tokenizer.eos_token_id

    def logits(context: tuple[int, ...]) -> list[float]:
        said = b" " + b"".join(spelling.of(token) or b"" for token in context).removeprefix(b" ")
        rest = whole[len(said) :] if whole.startswith(said) else b""
        row = [
            float(len(word)) if word and rest.startswith(word) else -10.0 for word in spelling.words
        ]
        row += [-10.0] * (len(tokenizer) - len(row))
        if not rest or len(said) in canonical:
            row[canonical.get(len(said), ends) if rest else ends] = 100.0
        return row

    return ScriptedTarget(logits, len(tokenizer), max_positions)


def drafter_between(
    target: Kind, draft: Kind, model: Target, way: Way | None = None
) -> ForeignDrafter:
    """Return a drafter for a target with one vocabulary whose model has another."""
    pair = (vocabulary(target), vocabulary(draft))
    sizes = (len(pair[0]), model.vocab_size)
    return ForeignDrafter(model, translate(*pair, *sizes), pair, vocab_size=sizes[0], way=way)
