"""Walking down a draft tree along tokens that the target chooses by itself."""

from __future__ import annotations

from collections.abc import Callable

from outrider.types import DraftTree, Verification


def children_by_row(tree: DraftTree) -> list[list[int]]:
    """Return, for each row of the pass, the nodes hanging off it, in the order drafted."""
    children: list[list[int]] = [[] for _ in range(len(tree) + 1)]
    for node, parent in enumerate(tree.parents):
        children[parent + 1].append(node)
    return children


def walk(tree: DraftTree, choose_token: Callable[[int], int]) -> Verification:
    """Descend to the child that carries the token chosen at its parent's row, as long as one does.

    `choose_token(row)` is asked once for each row on the way; its last answer ends the walk.
    """
    children = children_by_row(tree)
    path: list[int] = []
    row = 0
    while True:
        token = choose_token(row)
        match = next((node for node in children[row] if tree.tokens[node] == token), None)
        if match is None:
            return Verification(tuple(path), token)
        path.append(match)
        row = match + 1
