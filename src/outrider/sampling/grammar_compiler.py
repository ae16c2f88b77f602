"""Grammars compiled for a tokenizer, with llguidance.

It works out a mask when one is asked for, in tens of microseconds, rather than tables for every
token of a vocabulary beforehand; it goes back as many tokens as were rejected; it knows JSON
schemas, regular expressions and context-free grammars; and it needs no other package.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from outrider.errors import OptionError
from outrider.sampling.grammar import Grammar
from outrider.sampling.grammar_state import GrammarState, fault_of, one_line

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from transformers import PreTrainedTokenizerBase

_KEPT_TOKENIZERS = 4
_KEPT_GRAMMARS = 64


class CompiledGrammar:
    """A grammar ready to be followed by any number of requests, of any thread."""

    def __init__(self, start: LLMatcher, tokenizer: LLTokenizer) -> None:
        self._start = start
        self._tokenizer = tokenizer

    def begin(
        self, eos_token_ids: Iterable[int], stop_token_ids: Iterable[int], vocab_size: int
    ) -> GrammarState:
        """Return where a request stands that has written nothing yet.

        What the text may end with is an end-of-text token, or a stop token that is no text.
        `vocab_size` is the target's, which need not be the tokenizer's.
        """
        stops = {token for token in stop_token_ids if token < vocab_size}
        ends = {token for token in eos_token_ids if token < vocab_size}
        known = self._tokenizer.vocab_size
        ends |= {token for token in stops if token >= known or self._is_special(token)}
        if not (ends or stops):
            raise OptionError(
                "grammar needs a token that ends the text, and the model has none: name one in "
                "stop_token_ids"
            )
        return GrammarState(
            self._start.deep_copy,
            num_ids=known,
            ending_ids=ends or stops,
            own_ending_ids=self._tokenizer.eos_tokens,
            vocab_size=vocab_size,
        )

    def _is_special(self, token: int) -> bool:
        return self._tokenizer.is_special_token(token)


class GrammarCompiler:
    """Compiles grammars for one tokenizer and keeps the latest few; threads may share it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, kept: int = _KEPT_GRAMMARS) -> None:
        self._tokenizer = _adapt(tokenizer)
        self._compiled: OrderedDict[tuple[str, str], CompiledGrammar] = OrderedDict()
        self._kept = kept
        self._lock = Lock()

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Return the compiled grammar; raises OptionError, with the reason, if it has a fault."""
        key = (grammar.kind, grammar.text)
        with self._lock:
            if key in self._compiled:
                self._compiled.move_to_end(key)
                return self._compiled[key]
        # Others need not wait: at worst a grammar is compiled twice.
        compiled = self._compile(grammar)
        with self._lock:
            self._compiled[key] = compiled
            while len(self._compiled) > self._kept:
                self._compiled.popitem(last=False)
        return compiled

    def _compile(self, grammar: Grammar) -> CompiledGrammar:
        from llguidance import LLMatcher

        start = LLMatcher(self._tokenizer, _source(grammar), log_level=0)
        # The first mask tells of grammars without texts, and warms up what all requests share.
        start.compute_bitmask()
        fault = fault_of(start)
        if fault:
            raise OptionError(f"grammar ({grammar.kind}): {fault}")
        return CompiledGrammar(start, self._tokenizer)


@lru_cache(maxsize=_KEPT_TOKENIZERS)
def compiler_for(tokenizer: PreTrainedTokenizerBase, size: int) -> GrammarCompiler:
    """Return the compiler for a tokenizer of so many tokens, which takes a second to make.

    `size` tells a tokenizer from itself before tokens were added to it.
    """
    return GrammarCompiler(tokenizer)


def _adapt(tokenizer: PreTrainedTokenizerBase) -> LLTokenizer:
    """Return a tokenizer as llguidance reads it."""
    try:
        from llguidance.hf import from_tokenizer
    except ImportError as error:
        raise OptionError(
            "grammar needs a package that is not installed: pip install 'outrider[grammar]'"
        ) from error
    try:
        return from_tokenizer(cast("Any", tokenizer))  # says itself which it does not take
    except Exception as error:
        raise OptionError(
            f"grammar does not support the tokenizer ({type(tokenizer).__name__}): "
            f"{one_line(str(error))}"
        ) from error


def _source(grammar: Grammar) -> str:
    """Return a grammar in the form llguidance takes."""
    from llguidance import LLMatcher

    match grammar.kind:
        case "json_schema":
            return LLMatcher.grammar_from_json_schema(grammar.text)
        case "regex":
            return LLMatcher.grammar_from_regex(grammar.text)
        case "choice":
            options = (json.dumps(option) for option in json.loads(grammar.text))
            return LLMatcher.grammar_from_lark(f"start: {' | '.join(options)}")
        case "lark":
            return LLMatcher.grammar_from_lark(grammar.text)
        case "gbnf":
            return LLMatcher.grammar_from_lark(_gbnf_as_lark(grammar.text))


def _gbnf_as_lark(text: str) -> str:
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return gbnf_to_lark(text)
    except Exception as error:
        raise OptionError(f"grammar (gbnf): {one_line(str(error))}") from error
