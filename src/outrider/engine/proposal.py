"""What the engine takes from a drafter: trees that it can score and verify, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.types import DraftTree

if TYPE_CHECKING:
    from torch import Tensor


def check_proposal(tree: DraftTree, budget: int, vocab_size: int) -> None:
    """Raise TypeError or ValueError for a tree that breaks the drafters' contract."""
    if not isinstance(tree, DraftTree):
        raise TypeError(f"{type(tree).__name__} proposed where a DraftTree belongs")
    if len(tree) > budget:
        raise ValueError(f"{len(tree)} tokens proposed where {budget} were asked for")
    for token in tree.tokens:
        if not isinstance(token, int):
            raise TypeError(f"token {token!r} proposed; a token id is an int")
        if not 0 <= token < vocab_size:
            raise ValueError(f"token {token} proposed; the vocabulary ends at {vocab_size - 1}")
    if len(set(zip(tree.parents, tree.tokens, strict=True))) < len(tree):
        raise ValueError("siblings with the same token proposed")
    if tree.q is not None:
        _check_laws(tree, tree.q, vocab_size)


def _check_laws(tree: DraftTree, q: Tensor, vocab_size: int) -> None:
    if q.shape != (len(tree), vocab_size) or q.device.type != "cpu":
        wanted = f"[{len(tree)}, {vocab_size}] on the CPU"
        raise ValueError(f"q is {list(q.shape)} on {q.device}; it belongs to be {wanted}")
    # NaN is not >= 0 either, and infinity shows in the sum.
    if not bool((q >= 0).all()) or not bool(q.sum(-1).isfinite().all()):
        raise ValueError("q holds values that are no probabilities")
    for node, token in enumerate(tree.tokens):
        if not float(q[node, token]) > 0:
            raise ValueError(f"node {node} carries token {token}, which its q rules out")
