"""Where the nodes of a draft tree stand: depth, ancestry, the tokens above each row of a pass.

Row 0 of a pass is the last committed token (the root); row i + 1 is node i.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.types import ROOT, DraftTree


def depths(tree: DraftTree) -> list[int]:
    """Return each node's distance below the root: 1 for the root's children."""
    found: list[int] = []
    for parent in tree.parents:
        found.append(1 if parent == ROOT else found[parent] + 1)
    return found


def ancestors(tree: DraftTree) -> list[list[int]]:
    """Return for each node its ancestors and itself, from the root down."""
    found: list[list[int]] = []
    for node, parent in enumerate(tree.parents):
        found.append([node] if parent == ROOT else [*found[parent], node])
    return found


def row_paths(tree: DraftTree) -> list[tuple[int, ...]]:
    """Return for each row of the pass the drafted tokens between the root and that row."""
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        paths.append((*paths[parent + 1], token))
    return paths


def children(tree: DraftTree) -> list[list[int]]:
    """Return for each row of the pass the nodes that hang off it, in drafting order."""
    found: list[list[int]] = [[] for _ in range(len(tree) + 1)]
    for node, parent in enumerate(tree.parents):
        found[parent + 1].append(node)
    return found


def prune(tree: DraftTree, keep: Sequence[bool]) -> DraftTree:
    """Return the tree without the nodes not kept and everything below them."""
    index: dict[int, int] = {ROOT: ROOT}
    kept: list[int] = []
    for node, parent in enumerate(tree.parents):
        if keep[node] and parent in index:
            index[node] = len(kept)
            kept.append(node)
    if len(kept) == len(tree):
        return tree
    return DraftTree(
        tokens=tuple(tree.tokens[node] for node in kept),
        parents=tuple(index[tree.parents[node]] for node in kept),
        q=None if tree.q is None else tree.q[kept],
        chances=None if tree.chances is None else tuple(tree.chances[node] for node in kept),
    )


def worth_scoring(tree: DraftTree, may_pass: Sequence[bool]) -> list[bool]:
    """Return which nodes to score where those that may not pass are sure to be rejected.

    Of a sampled tree a node that is sure to be rejected counts all the same: what is drawn in its
    place, and what its siblings are judged by, depends on it. What hangs on it is never come to.
    """
    if tree.q is None:
        return list(may_pass)
    return [parent == ROOT or may_pass[parent] for parent in tree.parents]


def likeliest_path(tree: DraftTree) -> DraftTree:
    """Return the chain that leads from the root to the likeliest child, and on to its own.

    Among children without chances the first counts as the likeliest.
    """
    if tree.is_chain:
        return tree
    below = children(tree)
    keep = [False] * len(tree)
    row = 0
    while below[row]:
        chances = tree.chances
        node = below[row][0] if chances is None else max(below[row], key=chances.__getitem__)
        keep[node] = True
        row = node + 1
    return prune(tree, keep)
