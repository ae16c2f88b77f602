"""Texts in which pieces come again: where they do, and made-up ones that are nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random

NOWHERE = -1

_SHORTEST = 2  # tokens that must be the same: one alone recurs everywhere
_LONGEST = 12  # compared at most
_TRIED = 40  # earlier places compared at most, the latest ones


def continuations(ids: Sequence[int]) -> list[int]:
    """Return for each token where the text went on when what ends in it was last written.

    That is the place behind the longest piece written before, of at least two tokens, the latest
    of several; `NOWHERE` where there is none.
    """
    found = [NOWHERE] * len(ids)
    ends: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place in range(_SHORTEST - 1, len(ids)):
        seen = ends[ids[place - 1], ids[place]]
        best = 0
        for end in reversed(seen[-_TRIED:]):
            length = _common(ids, end, place)
            if length > best:
                best, found[place] = length, end + 1
        seen.append(place)
    return found


def _common(ids: Sequence[int], end: int, place: int) -> int:
    """Return how many tokens before two places are the same, those at them included."""
    length = _SHORTEST
    while length < _LONGEST and length <= end and ids[end - length] == ids[place - length]:
        length += 1
    return length


def patchwork(words: Sequence[int], length: int, random: Random) -> list[int]:
    """Return `length` token ids drawn from `words`, of which about a third come again."""
    pieces: list[list[int]] = []
    text: list[int] = []
    while len(text) < length:
        if pieces and random.random() < 0.5:
            piece = random.choice(pieces)
            start = random.randrange(max(1, len(piece) - 3))
            text += piece[start : start + random.randint(3, 20)]
        else:
            pieces.append([random.choice(words) for _ in range(random.randint(3, 25))])
            text += pieces[-1]
    return text[:length]
