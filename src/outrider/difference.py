"""Whether two answers are the same, and where not."""

from __future__ import annotations

from collections.abc import Sequence


def first_difference(one: Sequence[object], other: Sequence[object]) -> int | None:
    """Return where two sequences first differ, their lengths included; None if nowhere."""
    for position, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return position
    return None if len(one) == len(other) else min(len(one), len(other))


def count_others(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many places hold different things, those that only the longer one has included."""
    same = sum(left == right for left, right in zip(one, other, strict=False))
    return max(len(one), len(other)) - same


def find_difference(ids: Sequence[int], plain_ids: Sequence[int]) -> str | None:
    """Say where two sequences of token ids first differ, their lengths included."""
    position = first_difference(ids, plain_ids)
    if position is None:
        return None
    if position < min(len(ids), len(plain_ids)):
        return f"token {position} is {ids[position]}, plain decoding has {plain_ids[position]}"
    return f"{len(ids)} tokens, plain decoding has {len(plain_ids)}"
