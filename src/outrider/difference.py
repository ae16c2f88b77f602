"""Whether two answers are the same tokens, and where not."""

from __future__ import annotations

from collections.abc import Sequence


def find_difference(ids: Sequence[int], plain_ids: Sequence[int]) -> str | None:
    """Say where two sequences of token ids first differ, their lengths included."""
    for position, (token, plain) in enumerate(zip(ids, plain_ids, strict=False)):
        if token != plain:
            return f"token {position} is {token}, plain decoding has {plain}"
    if len(ids) != len(plain_ids):
        return f"{len(ids)} tokens, plain decoding has {len(plain_ids)}"
    return None
