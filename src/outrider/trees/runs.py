"""Draft trees whose leaves are followed by what comes next for sure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from outrider.trees.layout import row_paths
from outrider.types import DraftTree, TokenIds

Following: TypeAlias = Callable[[TokenIds, int], Sequence[int]]
"""The tokens, so many at most, that come after a path whatever the target says."""


def lengthen(tree: DraftTree, budget: int, following: Following) -> DraftTree:
    """Return a tree without `q` whose leaves go on with what follows them, to `budget` nodes.

    The likeliest leaves go first, those of the earlier nodes among equals. A token that follows for
    sure is as likely as the leaf it hangs off.
    """
    assert tree.q is None
    tokens, parents = list(tree.tokens), list(tree.parents)
    chances = None if tree.chances is None else list(tree.chances)
    paths = row_paths(tree)
    leaves = [node for node in range(len(tree)) if node not in tree.parents]
    if chances is not None:
        leaves.sort(key=lambda leaf: -chances[leaf])
    for leaf in leaves:
        if len(tokens) >= budget:
            break
        node = leaf
        for token in following(paths[leaf + 1], budget - len(tokens)):
            parents.append(node)
            node = len(tokens)
            tokens.append(token)
            if chances is not None:
                chances.append(chances[leaf])
    if len(tokens) == len(tree):
        return tree
    return DraftTree(
        tuple(tokens), tuple(parents), None, None if chances is None else tuple(chances)
    )
