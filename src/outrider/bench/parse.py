"""Values read from JSON, made into the dataclasses they were written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

_NAMES: Mapping[Any, str] = {str: "a text", int: "a whole number", float: "a number"}


def parse(kind: type[T], value: object, where: str) -> T:
    """Return `value` as the dataclass `kind`, made of plain ones, tuples, dicts and dataclasses.

    `where` names the value in errors. Raises ValueError for a field that is missing, unknown or
    of another type; numbers of either type stand for a float.
    """
    read: T = _parse(kind, value, where)
    return read


def _parse(kind: Any, value: object, where: str) -> Any:
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        (other,) = (one for one in inner if one is not NoneType)
        return None if value is None else _parse(other, value, where)
    if origin is Literal:
        return value if value in inner else _refuse(value, where, f"one of {', '.join(inner)}")
    if origin is tuple:
        items = value if isinstance(value, list) else _refuse(value, where, "a list")
        return tuple(_parse(inner[0], one, f"{where}[{at}]") for at, one in enumerate(items))
    if origin is dict:
        table = _table(value, where)
        return {name: _parse(inner[1], one, f"{where}.{name}") for name, one in table.items()}
    return _plain(kind, value, where)


def _dataclass(kind: Any, value: object, where: str) -> Any:
    table, hints = _table(value, where), _hints(kind)
    for name in table:
        if name not in hints:
            raise ValueError(f"{where} has an unknown field {name!r}")
    given = {}
    for field in fields(kind):
        if field.name in table:
            place = f"{where}.{field.name}"
            given[field.name] = _parse(hints[field.name], table[field.name], place)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{where} has no {field.name!r}")
    return kind(**given)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _table(value: object, where: str) -> dict[str, Any]:
    return value if isinstance(value, dict) else _refuse(value, where, "a table")


def _plain(kind: Any, value: object, where: str) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    return value if type(value) is kind else _refuse(value, where, _NAMES[kind])


def _refuse(value: object, where: str, expected: str) -> Any:
    raise ValueError(f"{where} is {value!r:.60}, not {expected}")
