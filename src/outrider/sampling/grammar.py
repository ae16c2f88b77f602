"""What a text must look like: a JSON schema, a regular expression, a choice, or a grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from outrider.errors import OptionError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from outrider.sampling.grammar_compiler import CompiledGrammar

GrammarKind: TypeAlias = Literal["json_schema", "regex", "choice", "lark", "gbnf"]

# A draw's temperature is the request's; llguidance would take one here, and not use it.
_TEMPERATURE = re.compile(r"^\s*[\w!?]+\[[^\]\n]*\btemperature\s*=", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language that all of the output must belong to, as text; made by one of the constructors.

    It says nothing of a tokenizer. `bound` compiles it for one, which a request needs; two grammars
    are equal if they say the same, bound or not.
    """

    kind: GrammarKind
    text: str
    compiled: CompiledGrammar | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        try:
            self.text.encode()
        except UnicodeError as error:
            _refuse(self.kind, f"it is no text in UTF-8: {error}")

    @classmethod
    def json_schema(
        cls, schema: Mapping[str, Any] | bool | str, *, compact: bool = False
    ) -> Grammar:
        """JSON that a schema accepts, given as a mapping or as JSON text.

        Properties come in the order in which the schema names them. White space may stand wherever
        JSON has it; with `compact` there is none.
        """
        found = _parse(schema) if isinstance(schema, str) else schema
        if found is True:
            found = {}
        if not isinstance(found, Mapping):
            _refuse("json_schema", f"{found!r} is no schema: expected an object, or true")
        if compact:
            own = found.get("x-guidance", {})
            found = {**found, "x-guidance": {**own, "whitespace_flexible": False}}
        try:
            return cls("json_schema", json.dumps(found, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError) as error:
            _refuse("json_schema", f"the schema is no JSON: {error}")

    @classmethod
    def json_object(cls, *, compact: bool = False) -> Grammar:
        """Any JSON object."""
        return cls.json_schema({"type": "object"}, compact=compact)

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """Text that a regular expression matches as a whole; there is no looking around."""
        return cls("regex", _text("regex", pattern))

    @classmethod
    def choice(cls, options: Iterable[str]) -> Grammar:
        """One of several texts, none of them empty."""
        texts = [] if isinstance(options, str) else list(options)
        if not texts or not all(isinstance(text, str) and text for text in texts):
            _refuse("choice", f"{options!r} are no options: expected texts that are not empty")
        return cls("choice", json.dumps(texts, ensure_ascii=False))

    @classmethod
    def lark(cls, text: str) -> Grammar:
        """A context-free grammar in Lark's notation, which begins at `start`."""
        if _TEMPERATURE.search(_text("lark", text)):
            _refuse("lark", "a rule sets a temperature, which is the request's to set")
        return cls("lark", text)

    @classmethod
    def gbnf(cls, text: str) -> Grammar:
        """A context-free grammar in llama.cpp's notation (GBNF), which begins at `root`."""
        return cls("gbnf", _text("gbnf", text))

    def bound(self, tokenizer: PreTrainedTokenizerBase | None) -> Grammar:
        """Return this grammar, compiled for a tokenizer; the latest few are kept.

        Raises OptionError without a tokenizer, for one that is not supported, for a grammar that
        has a fault or matches no text, and where the package that compiles it is not installed.
        """
        if tokenizer is None:
            raise OptionError("grammar needs a tokenizer, and the model has none")
        from outrider.sampling.grammar_compiler import compiler_for

        return replace(self, compiled=compiler_for(tokenizer, len(tokenizer)).compile(self))


def _refuse(kind: str, reason: str) -> NoReturn:
    raise OptionError(f"grammar ({kind}): {reason}")


def _text(kind: GrammarKind, value: object) -> str:
    if not isinstance(value, str):
        _refuse(kind, f"{value!r} is no text")
    return value


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        _refuse("json_schema", f"the schema is no JSON: {error}")
