"""The grammar that the options of a command ask for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import OptionError

if TYPE_CHECKING:
    from outrider.sampling.grammar import Grammar


def read_grammar(
    json_schema: Path | None, regex: str | None, grammar: Path | None
) -> Grammar | None:
    """Return what the text is to be held to, if anything; a grammar file is GBNF by its name.

    Raises OptionError for more than one of them, and for a file that cannot be read.
    """
    from outrider.sampling.grammar import Grammar

    options = {"--json-schema": json_schema, "--regex": regex, "--grammar": grammar}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} are given; the text can be held to one of them")
    if json_schema is not None:
        return Grammar.json_schema(_read("--json-schema", json_schema))
    if regex is not None:
        return Grammar.regex(regex)
    if grammar is None:
        return None
    text = _read("--grammar", grammar)
    return Grammar.gbnf(text) if grammar.suffix == ".gbnf" else Grammar.lark(text)


def _read(option: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise OptionError(f"{option} {path} cannot be read: {error}") from error
