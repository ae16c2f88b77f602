"""A row that has ended, as `generate` keeps it in its batch: padded, and scored all the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from torch import Tensor

from outrider.targets.base import Rows, Target
from outrider.types import DraftTree

_AT_ONCE = 16  # rows of padding in a pass, if so many may follow


class PaddedRow:
    """Gives the logits after a text, after one pad behind it, after two, and so on."""

    def __init__(self, target: Target, tokens: Sequence[int], pad: int, most: int) -> None:
        """`tokens` are the whole text [n], which padding makes `most` tokens long at most."""
        target.require_room(1, most, 1 + _AT_ONCE)
        self._target = target
        self._tokens = list(tokens)
        self._pad = pad
        self._most = most
        self._sequence = target.open(most)
        self._ahead: deque[Tensor] = deque()

    def next(self) -> tuple[list[int], Tensor]:
        """Return the ids of the next step and the logits [1, V] after them."""
        if not self._ahead:
            self._score()
        ids = list(self._tokens)
        self._tokens.append(self._pad)
        return ids, self._ahead.popleft()

    def close(self) -> None:
        """Free what the target holds of it."""
        self._target.close(self._sequence)

    def _score(self) -> None:
        """Score the tokens not cached yet and the pads to come."""
        count = min(_AT_ONCE, self._most - len(self._tokens))
        pending = tuple(self._tokens[self._target.cached(self._sequence) :])
        pads = DraftTree.chain([self._pad] * count)
        (logits,) = self._target.score([Rows(self._sequence, pending, pads)]).logits
        self._target.commit(self._sequence, range(count))
        self._ahead.extend(logits[row : row + 1] for row in range(1 + count))
