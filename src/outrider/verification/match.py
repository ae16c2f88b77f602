"""The match rule: accept the drafts that the target would have chosen anyway."""

from __future__ import annotations

from outrider.types import DraftTree, Verification
from outrider.verification.base import TargetRows
from outrider.verification.walk import walk


def verify_match(rows: TargetRows, tree: DraftTree) -> Verification:
    """Follow the target's own token from row to row while the tree holds it.

    What is emitted depends on the rows alone; the tree decides only how far one round gets. It
    needs no `q`, and it is the best rule there is for a deterministic draft.
    """
    return walk(tree, rows.token)
