"""A draft tree from guesses that were made for each depth apart."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from outrider.types import NO_DRAFT, ROOT, DraftTree


def best_first(
    tokens: Sequence[Sequence[int]], chances: Sequence[Sequence[float]], budget: int
) -> DraftTree:
    """Return the `budget` likeliest paths of tokens, where every depth is guessed by itself.

    `tokens[d]` are candidates for depth d, the likeliest first, with `chances[d]` whatever was
    drafted above; a token that occurs twice counts once. A node is as likely as its path is by
    the product. The best node is taken, and makes way for its next sibling and its first child
    (as in DDTree and JetSpec, 2606.18394).
    """
    levels = [_distinct(*level) for level in zip(tokens, chances, strict=True)]
    drafted: list[int] = []
    parents: list[int] = []
    reached: list[float] = []
    heap: list[tuple[float, int, int, int, int]] = []  # -chance, age, parent, depth, rank
    age = 0

    def push(parent: int, depth: int, rank: int) -> None:
        nonlocal age
        if depth < len(levels) and rank < len(levels[depth]):
            above = 1.0 if parent == ROOT else reached[parent]
            heappush(heap, (-above * levels[depth][rank][1], age, parent, depth, rank))
            age += 1

    push(ROOT, 0, 0)
    while heap and len(drafted) < budget:
        chance, _, parent, depth, rank = heappop(heap)
        node = len(drafted)
        drafted.append(levels[depth][rank][0])
        parents.append(parent)
        reached.append(-chance)
        push(parent, depth, rank + 1)
        push(node, depth + 1, 0)
    if not drafted:
        return NO_DRAFT
    return DraftTree(tuple(drafted), tuple(parents), None, tuple(reached))


def _distinct(tokens: Sequence[int], chances: Sequence[float]) -> list[tuple[int, float]]:
    """Pair tokens with chances between 0 and 1, each token once."""
    found: dict[int, float] = {}
    for token, chance in zip(tokens, chances, strict=True):
        found.setdefault(token, min(1.0, chance))
    return list(found.items())
