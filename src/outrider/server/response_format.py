"""`response_format` of the OpenAI API: what an answer must look like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from outrider.errors import OptionError
from outrider.sampling.grammar import Grammar

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def parse_response_format(value: Any) -> Grammar | None:
    """Return the grammar that `response_format` asks for; None where any text will do.

    It is `{"type": "text"}`, `{"type": "json_object"}`, or `{"type": "json_schema", "json_schema":
    {"name": ..., "schema": ..., "description": ..., "strict": ...}}`; None is the same as text.
    Schemas are kept to whatever `strict` says. Raises OptionError, naming the field, for anything
    else; whether the schema can be followed shows when the grammar is bound.
    """
    if value is None:
        return None
    fields = _object("response_format", value)
    match fields.get("type"):
        case "text":
            _only("response_format", fields, {"type"})
            return None
        case "json_object":
            _only("response_format", fields, {"type"})
            return Grammar.json_object()
        case "json_schema":
            _only("response_format", fields, {"type", "json_schema"})
            return _schema("response_format.json_schema", fields.get("json_schema"))
        case other:
            _refuse("response_format.type", other, "text, json_object or json_schema")


def _schema(name: str, value: Any) -> Grammar:
    fields = _object(name, value)
    _only(name, fields, {"name", "description", "schema", "strict"})
    title, strict = fields.get("name"), fields.get("strict")
    if not isinstance(title, str) or not _NAME.fullmatch(title):
        _refuse(f"{name}.name", title, "1 to 64 letters, digits, _ or -")
    if not isinstance(fields.get("description", ""), str | None):
        _refuse(f"{name}.description", fields["description"], "a text")
    if strict not in (None, True, False):
        _refuse(f"{name}.strict", strict, "true or false")
    schema = _object(f"{name}.schema", fields.get("schema"))
    if "x-guidance" in schema:
        # It speaks to the compiler, and some of what it can say keeps that busy for ever.
        raise OptionError(f"{name}.schema.x-guidance is not known here: expected a plain schema")
    try:
        return Grammar.json_schema(schema)
    except OptionError as error:
        raise OptionError(f"{name}.schema: {error}") from error


def _object(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(name, value, "an object")
    return value


def _only(name: str, fields: Mapping[str, Any], known: set[str]) -> None:
    for field in fields:
        if field not in known:
            raise OptionError(f"{name}.{field} is not known here: expected {_list(known)}")


def _list(names: set[str]) -> str:
    return " or ".join(sorted(names))


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    raise OptionError(f"{name} is {value!r}: expected {allowed}")
