"""Walking down a draft tree along tokens that the target chooses by itself."""

from __future__ import annotations

from collections.abc import Callable

from outrider.trees.layout import children
from outrider.types import DraftTree, Verification


def walk(tree: DraftTree, choose_token: Callable[[int], int]) -> Verification:
    """Descend to the child that carries the token chosen at its parent's row, as long as one does.

    `choose_token(row)` is asked once for each row on the way; its last answer ends the walk.
    """
    below = children(tree)
    path: list[int] = []
    row = 0
    while True:
        token = choose_token(row)
        match = next((node for node in below[row] if tree.tokens[node] == token), None)
        if match is None:
            return Verification(tuple(path), token)
        path.append(match)
        row = match + 1
