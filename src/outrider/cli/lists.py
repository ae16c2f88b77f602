"""Options that hold several values, with commas between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from outrider.errors import OptionError

T = TypeVar("T")

_NAMES: dict[object, str] = {int: "whole numbers", float: "numbers", str: "names"}


def parse_list(name: str, text: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    """Turn "1,4,16" into its values; raises OptionError, naming the option."""
    try:
        if not all(part.strip() for part in text.split(",")):
            raise ValueError
        return tuple(kind(part.strip()) for part in text.split(","))
    except ValueError as error:
        wanted = _NAMES[kind]
        raise OptionError(
            f"--{name} {text!r} is no list of {wanted} with commas between them"
        ) from error


def parse_pairs(name: str, pairs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Turn ["NAME=VALUE", ...] into pairs, each name once; raises OptionError."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not (key and sign and value):
            raise OptionError(f"--{name} {pair!r} is not NAME=PATH")
        if key in found:
            raise OptionError(f"--{name} is given twice for {key}")
        found[key] = value
    return tuple(found.items())
