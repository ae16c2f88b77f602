"""Traversal verification (Weng et al. 2505.12398): judge whole paths, from the leaves upwards.

On a chain it is block verification (Sun et al. 2403.10444).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.trees.layout import children
from outrider.types import DraftTree, Verification
from outrider.verification.base import Randomness, TargetRows
from outrider.verification.law import at, draft_law, residual
from outrider.verification.rejection import verify_point_mass

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class _Level:
    """A node on the way from the root to the leaf being judged."""

    row: int
    acceptance: float = 1
    """Probability of accepting the path down to here, given that all tried so far was rejected."""
    drawn_from: Tensor | None = None
    """Draft distribution of this node; the root has none."""
    p: Tensor | None = None
    """Target distribution after this node, less what its rejected children have used up."""
    num_rejected: int = 0

    def reject(self, child: _Level) -> None:
        """Take the first remaining child out of the target distribution and the acceptance."""
        assert self.p is not None and child.drawn_from is not None
        self.p, mass = residual(self.p, child.drawn_from, scale=self.acceptance)
        spread = mass + (1 - self.acceptance)
        self.acceptance = mass / spread if spread > 0 else 1
        self.num_rejected += 1


def verify_traversal(rows: TargetRows, tree: DraftTree, randomness: Randomness) -> Verification:
    """Try leaves in the order drafted, dropping each rejected one, until a path is accepted.

    A path is accepted with the running product of p / q along it, capped at 1 at every step, so
    that a likely later token makes up for an unlikely earlier one.
    """
    if tree.q is None:
        return verify_point_mass(rows, tree, randomness)
    below = children(tree)
    levels = [_Level(row=0)]
    while True:
        _descend(rows, tree, below, levels)
        leaf = levels[-1]
        if leaf.row == 0 or randomness.accept(leaf.row - 1, leaf.acceptance):
            p = rows.probs(leaf.row) if leaf.p is None else leaf.p
            path = tuple(level.row - 1 for level in levels[1:])
            return Verification(path, randomness.draw(len(tree) + leaf.row, p))
        levels.pop()
        levels[-1].reject(leaf)


def _descend(
    rows: TargetRows, tree: DraftTree, below: list[list[int]], levels: list[_Level]
) -> None:
    """Extend `levels` along first remaining children to a leaf."""
    # Below a node that cannot be accepted nothing can: its rows need not even be asked for.
    while (level := levels[-1]).acceptance > 0 and level.num_rejected < len(below[level.row]):
        if level.p is None:
            level.p = rows.probs(level.row)
        *_, node = siblings = below[level.row][: level.num_rejected + 1]
        q = draft_law(tree, siblings, level.p)
        ratio = at(level.p, tree.tokens[node]) / at(q, tree.tokens[node])
        levels.append(_Level(node + 1, min(1, level.acceptance * ratio), q))
