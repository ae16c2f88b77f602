"""What `response_format` asks for, and what is no such thing."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.errors import OptionError
from outrider.sampling.grammar import Grammar
from outrider.server.response_format import parse_response_format

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}, "required": ["b"]}


def of_schema(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "item-1", "schema": SCHEMA} | fields}


@pytest.mark.parametrize("value", [None, {"type": "text"}])
def test_text_may_be_anything(value: Any) -> None:
    assert parse_response_format(value) is None


def test_a_json_object_may_be_any() -> None:
    assert parse_response_format({"type": "json_object"}) == Grammar.json_object()


@pytest.mark.parametrize(
    "fields", [{}, {"strict": True}, {"strict": False}, {"strict": None, "description": "An item."}]
)
def test_a_schema_is_kept_to_as_it_stands(fields: dict[str, Any]) -> None:
    assert parse_response_format(of_schema(**fields)) == Grammar.json_schema(SCHEMA)


REFUSED: list[tuple[Any, str]] = [
    ("json_object", "response_format is 'json_object': expected an object"),
    ([], "response_format is"),
    ({}, "response_format.type is None: expected text, json_object or json_schema"),
    ({"type": "xml"}, "response_format.type is 'xml'"),
    ({"type": ["text"]}, "response_format.type is"),
    ({"type": "text", "schema": {}}, "response_format.schema is not known"),
    ({"type": "json_object", "json_schema": {}}, "response_format.json_schema is not known"),
    ({"type": "json_schema"}, "response_format.json_schema is None"),
    ({"type": "json_schema", "schema": {}}, "response_format.schema is not known"),
    (of_schema(name=None), "response_format.json_schema.name is None"),
    (of_schema(name="two words"), "response_format.json_schema.name is 'two words'"),
    (of_schema(name="x" * 65), "response_format.json_schema.name is"),
    (of_schema(schema=None), "response_format.json_schema.schema is None"),
    (of_schema(schema="{}"), "response_format.json_schema.schema is '{}'"),
    (of_schema(schema={"const": {1}}), "response_format.json_schema.schema: .*no JSON"),
    (of_schema(schema={"x-guidance": {}}), r"response_format.json_schema.schema.x-guidance is not"),
    (of_schema(strict="yes"), "response_format.json_schema.strict is 'yes'"),
    (of_schema(description=3), "response_format.json_schema.description is 3"),
    (of_schema(Strict=True), "response_format.json_schema.Strict is not known"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED)
def test_anything_else_is_an_error_that_names_the_field(value: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        parse_response_format(value)
    assert "\n" not in str(caught.value)
