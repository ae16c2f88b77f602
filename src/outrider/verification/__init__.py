"""Rules that decide which drafted tokens stand, without changing what the target says.

Those that do change it stand apart, in `lossy.py`.
"""

from __future__ import annotations

from typing import get_args

from outrider.errors import OptionError
from outrider.types import AnyRule, DraftTree, LossyRule, Rule, Verification
from outrider.verification.base import Randomness, SpreadRows, TargetRows
from outrider.verification.block import verify_block
from outrider.verification.lossy import verify_lossy
from outrider.verification.match import verify_match
from outrider.verification.rejection import verify_rejection
from outrider.verification.traversal import verify_traversal

__all__ = [
    "Randomness",
    "TargetRows",
    "verify",
    "verify_block",
    "verify_match",
    "verify_rejection",
    "verify_traversal",
]


def verify(
    rule: AnyRule, rows: TargetRows, tree: DraftTree, randomness: Randomness
) -> Verification:
    """Verify a tree with the rule of that name; `match` leaves `randomness` untouched.

    A lossy rule has no name here: it is a value of its own, made by `parse_lossy` alone.

    Raises:
        OptionError: there is no such rule, or it cannot verify a tree of this shape.
    """
    if isinstance(rule, LossyRule):
        assert isinstance(rows, SpreadRows)
        return verify_lossy(rule, rows, tree, randomness)
    match rule:
        case "match":
            return verify_match(rows, tree)
        case "rejection":
            return verify_rejection(rows, tree, randomness)
        case "block":
            return verify_block(rows, tree, randomness)
        case "traversal":
            return verify_traversal(rows, tree, randomness)
    raise OptionError(f"unknown rule {rule!r}; it is one of {', '.join(get_args(Rule))}")
