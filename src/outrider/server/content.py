"""Values that a body may write in several ways: texts, prompts, message contents, biases."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

MOST_STOPS = 16

_TEXT_PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
    "additionalProperties": False,
}
_CONTENT = {"anyOf": [{"type": "string"}, {"type": "array", "items": _TEXT_PART, "minItems": 1}]}
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_TEXTS = {"type": "array", "items": {"type": "string"}, "minItems": 1}


def _content(value: Any) -> str:
    """Return a message's text, its parts joined."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError("it must be a text, or a list of parts of type text")
    return "".join(_part(part, place) for place, part in enumerate(value))


def _part(part: Any, place: int) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        kind = part.get("type") if isinstance(part, dict) else part
        raise ValueError(f"part {place} is of type {kind!r}; only parts of type text are supported")
    if not isinstance(part.get("text"), str):
        raise ValueError(f"part {place} has no text")
    others = sorted(set(part) - {"type", "text"})
    if others:
        raise ValueError(f"part {place}: {others[0]} is not supported")
    return str(part["text"])


def _stops(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ValueError("it must be a text that is not empty, or a list of them")
    if len(texts) > MOST_STOPS:
        raise ValueError(f"it has {len(texts)} texts; at most {MOST_STOPS} are allowed")
    return tuple(texts)


def _biases(value: Any) -> dict[int, float] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("it must be an object of token ids and numbers")
    return {_token_id(key): _bias(key, bias) for key, bias in value.items()}


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) < 10):
        raise ValueError(f"{key!r} is no token id")
    return int(key)


def _bias(key: str, bias: Any) -> float:
    is_number = isinstance(bias, int | float) and not isinstance(bias, bool)
    if not is_number or not -100 <= bias <= 100:
        raise ValueError(f"the bias of {key} is {bias!r}; it must be a number from -100 to 100")
    return float(bias)


def _draft_limit(value: Any) -> int | None:
    """Return a number of tokens; None is whatever the server thinks best."""
    if value in (None, "auto"):
        return None
    if type(value) is not int or value < 0:
        raise ValueError(f"it is {value!r}; it must be 'auto' or a number of tokens from 0")
    return value


def _prompts(value: Any) -> tuple[str | tuple[int, ...], ...]:
    """Return the prompts, each a text or token ids; one is as good as a list of one."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return tuple(value)
        if _are_ids(value):
            return (tuple(value),)
        if all(_are_ids(item) for item in value):
            return tuple(tuple(item) for item in value)
    raise ValueError("it must be a text, a list of texts, a list of token ids, or a list of those")


def _are_ids(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(type(item) is int for item in value)


Content = Annotated[str, PlainValidator(_content), WithJsonSchema(_CONTENT)]
Stops = Annotated[
    tuple[str, ...] | None,
    PlainValidator(_stops),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "null"},
                {"type": "string", "minLength": 1},
                {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "maxItems": MOST_STOPS,
                },
            ]
        }
    ),
]
DraftLimit = Annotated[
    int | None,
    PlainValidator(_draft_limit),
    WithJsonSchema(
        {"anyOf": [{"type": "null"}, {"const": "auto"}, {"type": "integer", "minimum": 0}]}
    ),
]
Biases = Annotated[
    dict[int, float] | None,
    PlainValidator(_biases),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "propertyNames": {"pattern": "^[0-9]{1,9}$"},
                    "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
                },
            ]
        }
    ),
]
Prompts = Annotated[
    tuple[str | tuple[int, ...], ...],
    PlainValidator(_prompts),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                _TEXTS,
                _IDS,
                {"type": "array", "items": _IDS, "minItems": 1},
            ]
        }
    ),
]
