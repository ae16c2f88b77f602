"""Streams as a client reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def events(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the objects of a stream that ends as it should."""
    found = [line.removeprefix("data: ") for line in lines if line]
    assert found[-1] == "[DONE]", found[-1]
    return [json.loads(line) for line in found[:-1]]


def texts(chunks: Iterable[dict[str, Any]]) -> dict[int, str]:
    """Return the text of each choice of a stream, joined."""
    joined: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            piece = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            joined[choice["index"]] = joined.get(choice["index"], "") + piece
    return joined
