"""Drafters that deserve no trust: one always wrong, one always wrong and slow."""

from __future__ import annotations

import time
from collections.abc import Sequence

from outrider.drafters.base import TextDrafter
from outrider.types import DraftTree


class WrongDrafter(TextDrafter):
    """Proposes as many tokens as it may, none of them ever right (token ids 1, 2, 3 by turns)."""

    name = "wrong"
    seconds = 0.0
    """Time it takes for each token it proposes."""

    def propose(self, states: Sequence[list[int]], budgets: Sequence[int]) -> list[DraftTree]:
        if self.seconds:
            time.sleep(self.seconds * max(budgets, default=0))
        # Special tokens of the embedded model: never its answer to a prompt.
        return [DraftTree.chain([1 + i % 3 for i in range(budget)]) for budget in budgets]


class SlowDrafter(WrongDrafter):
    """Takes about two passes of a small model for every token, and is wrong all the same."""

    name = "slow"
    seconds = 0.04
