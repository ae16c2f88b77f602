"""The block rule: judge a chain as a whole, which never accepts fewer tokens than one by one."""

from __future__ import annotations

from outrider.errors import OptionError
from outrider.types import DraftTree, Verification
from outrider.verification.base import Randomness, TargetRows
from outrider.verification.traversal import verify_traversal


def verify_block(rows: TargetRows, tree: DraftTree, randomness: Randomness) -> Verification:
    """Accept the longest prefix of a chain that passes block verification (2403.10444).

    Without `q` it comes to the same as the rejection rule: a point mass leaves nothing to gain.

    Raises:
        OptionError: the draft branches.
    """
    if not tree.is_chain:
        node = next(node for node, parent in enumerate(tree.parents) if parent != node - 1)
        raise OptionError(
            f"rule 'block' verifies chains only, but node {node} hangs off {tree.parents[node]}"
            f" rather than {node - 1}; use rule 'match' or 'rejection' for trees"
        )
    return verify_traversal(rows, tree, randomness)
