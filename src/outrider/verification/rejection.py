"""The rejection rule: accept a draft by how likely the target finds it, else draw what is missing.

On a chain it is speculative sampling (Leviathan et al. 2211.17192, Chen et al. 2302.01318), on a
tree recursive rejection sampling without replacement (Jeon et al. 2402.14160).
"""

from __future__ import annotations

from outrider.trees.layout import children
from outrider.types import DraftTree, Verification
from outrider.verification.base import Randomness, TargetRows
from outrider.verification.law import at, draft_law, residual
from outrider.verification.walk import walk


def verify_rejection(rows: TargetRows, tree: DraftTree, randomness: Randomness) -> Verification:
    """Accept at most one child of each node, trying them in the order they were drafted.

    Child c, drawn from q once its earlier siblings were removed, is accepted with probability
    min(1, p(c) / q(c)); after each rejection p becomes the residual max(0, p - q), normalised.
    """
    if tree.q is None:
        return verify_point_mass(rows, tree, randomness)
    below = children(tree)
    path: list[int] = []
    row = 0
    while True:
        p = rows.probs(row)
        for rank, child in enumerate(below[row]):
            q = draft_law(tree, below[row][: rank + 1], p)
            ratio = at(p, tree.tokens[child]) / at(q, tree.tokens[child])
            if randomness.accept(child, min(1, ratio)):
                path.append(child)
                row = child + 1
                break
            p, _ = residual(p, q)
        else:
            # Drawing keys start behind the accepting ones: no two decisions share a stream.
            return Verification(tuple(path), randomness.draw(len(tree) + row, p))


def verify_point_mass(rows: TargetRows, tree: DraftTree, randomness: Randomness) -> Verification:
    """Verify a deterministic draft, of which every rule that rejects makes the same.

    With q a point mass, a child is accepted with probability p(c) and its rejection only strikes
    it from p. So one draw from p decides between all the children and the recovered token.
    """
    return walk(tree, lambda row: randomness.draw(len(tree) + row, rows.probs(row)))
