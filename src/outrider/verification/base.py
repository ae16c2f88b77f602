"""What a verification rule sees: the target's rows, and its randomness. No model, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


class TargetRows(Protocol):
    """The target's answer at each row of one request's pass, after every sampling option.

    Row 0 stands for the committed prefix, row `i + 1` for node `i` of the tree: what the target
    says *after* that node. A row may be worked out only when asked for, so a rule asks for no row
    it does not need, and for each row at most once.
    """

    def token(self, row: int) -> int:
        """Return the token the target itself draws at this row (keyed noise, or its argmax)."""
        ...

    def probs(self, row: int) -> Tensor:
        """Return the target's distribution p at this row [V]; the rule may not modify it."""
        ...


@runtime_checkable
class SpreadRows(TargetRows, Protocol):
    """Rows that also say how sure the target is, for the lossy rules; a row may be asked again."""

    @property
    def is_greedy(self) -> bool:
        """Whether the target's token is the likeliest rather than a draw."""
        ...

    def spread(self, row: int) -> Tensor:
        """Return the target's distribution [V] at this row, at temperature 1 if it is greedy."""
        ...


class Randomness(Protocol):
    """Independent random decisions for the rules that reject.

    `key` names the decision within the round (for example the node it concerns), so that each
    decision has its own stream; none of them may be the noise the draft was drawn with.
    """

    def accept(self, key: int, probability: float) -> bool:
        """Return True with the given probability."""
        ...

    def draw(self, key: int, weights: Tensor) -> int:
        """Return an index drawn in proportion to `weights` [V] (not negative, not all zero)."""
        ...
