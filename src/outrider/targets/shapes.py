"""Pass shapes in which a row has the same bits: measured on this machine, not assumed.

Whether a matrix product gives a row other bits when it has more or fewer neighbours depends on
the library, the dtype and the machine. So a shape is only used under invariant numerics after a
trial in which every row of it came out bit for bit as in the reference shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outrider.targets.base import Rows, Target
from outrider.types import DraftTree

TILE = 8
"""Rows of the reference shape, one sequence by itself; also the width attention always has."""

MOST_SEQUENCES = 8
_CONTEXT = 24


class ShapeProof:
    """Knows which shapes (sequences, rows each) may stand in for the reference shape."""

    def __init__(self) -> None:
        self._same_bits: dict[tuple[int, int], bool] = {(1, TILE): True}

    def width(self, target: ShapedTarget, sequences: int, rows: int) -> int | None:
        """Return the least proven width for so many sequences of at most `rows` rows each."""
        for width in (1, 2, 4, TILE):
            if width >= rows and self._holds(target, sequences, width):
                return width
        return None

    def _holds(self, target: ShapedTarget, sequences: int, width: int) -> bool:
        shape = (sequences, width)
        if shape not in self._same_bits:
            self._same_bits[shape] = same_bits(target, sequences, width)
        return self._same_bits[shape]


class ShapedTarget(Target):
    """A target that can be told which shape a pass is to have."""

    def score_shaped(self, rows: Sequence[Rows], width: int) -> list[torch.Tensor]:
        """Score sequences of neighbouring slots in one pass of exactly this width."""
        raise NotImplementedError


def same_bits(target: ShapedTarget, sequences: int, width: int) -> bool:
    """Score the same rows in a shape and in the reference shape, and compare their bits."""
    generator = torch.Generator().manual_seed(sequences)
    size = (sequences, _CONTEXT + TILE)
    texts = torch.randint(target.vocab_size, size, generator=generator).tolist()
    handles = [target.open_trial(_CONTEXT + TILE) for _ in texts]
    try:
        expected = []
        for handle, text in zip(handles, texts, strict=True):
            for token in range(0, _CONTEXT, TILE):
                chunk = DraftTree.chain(text[token + 1 : token + TILE])
                target.score_shaped([Rows(handle, (text[token],), chunk)], TILE)
                target.commit(handle, range(TILE - 1))
            chunk = DraftTree.chain(text[_CONTEXT + 1 :])
            expected += target.score_shaped([Rows(handle, (text[_CONTEXT],), chunk)], TILE)
        for first in range(0, TILE, width):
            start = _CONTEXT + first
            rows = [
                Rows(handle, (text[start],), DraftTree.chain(text[start + 1 : start + width]))
                for handle, text in zip(handles, texts, strict=True)
            ]
            found = target.score_shaped(rows, width)
            for one, other in zip(found, expected, strict=True):
                if not torch.equal(one, other[first : first + width]):
                    return False
            for handle in handles:
                target.commit(handle, range(width - 1))
        return True
    finally:
        for handle in handles:
            target.close(handle)
