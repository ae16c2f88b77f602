"""Grammars compiled for a tokenizer: their faults told in a line, and none compiled twice."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tokenizers import AddedToken, Tokenizer, models
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from outrider.errors import OptionError
from outrider.sampling import grammar_compiler
from outrider.sampling.grammar import Grammar
from outrider.sampling.grammar_compiler import GrammarCompiler, compiler_for
from support.byte_vocabulary import EOS, VOCAB, allowed, bound, byte_tokenizer, shared_tokenizer

FAULTS: list[tuple[Grammar, str]] = [
    (Grammar.json_schema({"type": "objekt"}), r"grammar \(json_schema\): Invalid type: objekt"),
    (Grammar.json_schema({"not": {"type": "string"}}), "not"),
    (Grammar.json_schema({"type": "string", "format": "nonsense"}), "Unknown format: nonsense"),
    (Grammar.json_schema({"$ref": "#/definitions/x"}), "/definitions/x"),
    (Grammar.json_schema({"allOf": [{"type": "string"}, {"type": "null"}]}), "Unsatisfiable"),
    (Grammar.json_schema({"x-guidance": {"white": 1}}), "white"),
    (Grammar.regex("("), r"grammar \(regex\): .*unclosed group"),
    (Grammar.regex("a(?=b)"), "look-ahead"),
    (Grammar.regex(r"[^\s\S]"), r"grammar \(regex\): no text in this vocabulary"),
    (Grammar.lark("start: other"), r"grammar \(lark\): .*unknown name"),
    (Grammar.lark(""), "Empty grammar"),
    (Grammar.gbnf('item ::= "a"'), r"grammar \(gbnf\): .*root"),
    (Grammar.gbnf("root ::= other"), "other"),
    (Grammar.gbnf('root ::= start\nstart ::= "a"'), "'start' already exists"),
]


@pytest.mark.parametrize(("grammar", "reason"), FAULTS)
def test_a_fault_is_told_in_one_line_with_its_reason(grammar: Grammar, reason: str) -> None:
    with pytest.raises(OptionError, match=reason) as caught:
        bound(grammar)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_grammar_is_compiled_once_and_the_latest_few_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []
    inner = GrammarCompiler._compile

    def counted(self: GrammarCompiler, grammar: Grammar) -> grammar_compiler.CompiledGrammar:
        compiled.append(grammar.text)
        return inner(self, grammar)

    monkeypatch.setattr(GrammarCompiler, "_compile", counted)
    compiler = GrammarCompiler(shared_tokenizer(), kept=2)
    first = compiler.compile(Grammar.regex("a"))
    for pattern in "babcab":
        compiler.compile(Grammar.regex(pattern))
    assert compiled == ["a", "b", "c", "a", "b"]
    assert compiler.compile(Grammar.regex("a")) is not first


def test_a_tokenizer_is_read_once_until_tokens_are_added_to_it() -> None:
    tokenizer = byte_tokenizer()
    first = Grammar.regex("ab|xy").bound(tokenizer)
    assert compiler_for(tokenizer, len(tokenizer)) is compiler_for(tokenizer, len(tokenizer))
    tokenizer.add_tokens([AddedToken("xy", special=False)])
    second = Grammar.regex("ab|xy").bound(tokenizer)
    begun = [
        grammar.compiled.begin((EOS,), (), VOCAB + 1)
        for grammar in (first, second)
        if grammar.compiled is not None
    ]
    assert [VOCAB in (allowed(state) or ()) for state in begun] == [False, True]


def test_threads_may_share_a_compiler_and_what_it_compiled() -> None:
    compiler = GrammarCompiler(byte_tokenizer(), kept=3)
    words = ["pq", "cat", "true", "null"] * 6

    def follow(word: str) -> list[set[int] | None]:
        state = compiler.compile(Grammar.regex(f"({word})+")).begin((EOS,), (), VOCAB)
        text = tuple(word.encode())
        found = []
        for _ in range(5):
            found += [allowed(state, text[:length]) for length in range(len(text) + 1)]
            state.append(text)
        return found

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(follow, words))
    assert found == [follow(word) for word in words]


def test_a_tokenizer_that_is_not_supported_is_an_error() -> None:
    vocab = {"[UNK]": 0, "word": 1}
    words = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer: PreTrainedTokenizerBase = PreTrainedTokenizerFast(tokenizer_object=words)  # type: ignore[no-untyped-call]
    with pytest.raises(OptionError, match=r"does not support the tokenizer \(") as caught:
        Grammar.regex("a").bound(tokenizer)
    assert "\n" not in str(caught.value)


def test_without_the_package_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance.hf", None)
    with pytest.raises(OptionError, match=r"pip install 'outrider\[grammar\]'"):
        Grammar.regex("a").bound(byte_tokenizer())


def test_a_grammar_is_made_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    assert Grammar.json_object().kind == "json_schema"
