"""The rows one sequence wants scored, and the stretches of them that share a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from outrider.targets.base import Rows
from outrider.targets.padded import Branches
from outrider.trees.layout import ancestors, depths


@dataclass(slots=True)
class CachedSequence:
    """Where a sequence is stored and how much of it is committed."""

    slot: int
    cached: int = 0
    staged: tuple[int, int] | None = None
    """Pending tokens and nodes of the last pass, until they are committed."""


@dataclass(slots=True)
class Work:
    """Rows in storage order: pending tokens, then the nodes of the tree."""

    sequence: CachedSequence
    tokens: list[int]
    positions: list[int]
    num_pending: int
    depths: list[int]
    lineage: list[list[int]] | None
    """Each node's ancestors and itself, for a tree that is no chain."""
    logits: list[Tensor] = field(default_factory=list)
    """Of the root and the nodes, part by part."""
    features: list[Tensor] = field(default_factory=list)
    """Of all rows, part by part, if any were asked for."""

    @classmethod
    def of(cls, sequence: CachedSequence, rows: Rows) -> Work:
        """Lay out a request's share of a pass."""
        base = sequence.cached + len(rows.pending)
        levels = depths(rows.tree)
        return cls(
            sequence=sequence,
            tokens=[*rows.pending, *rows.tree.tokens],
            positions=[*range(sequence.cached, base), *(base - 1 + depth for depth in levels)],
            num_pending=len(rows.pending),
            depths=levels,
            lineage=None if rows.tree.is_chain else ancestors(rows.tree),
        )

    @property
    def root(self) -> int:
        """The row of the last committed token: the first whose logits are wanted."""
        return self.num_pending - 1

    def chunks(self, first: int, last: int, size: int) -> Iterator[Span]:
        """Cut the rows `first` to `last` into spans of at most `size` rows."""
        for start in range(first, last, size):
            yield Span(self, start, min(start + size, last))


@dataclass(frozen=True, slots=True)
class Span:
    """The rows `first` to `last` of one work, in one pass."""

    work: Work
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def start(self) -> int:
        """The token of the slot where the first row is stored."""
        return self.work.sequence.cached + self.first

    def padded(self, values: list[int], width: int) -> list[int]:
        """Return the span's values, the last one repeated up to `width`; nobody looks at those."""
        return values[self.first : self.last] + [values[self.last - 1]] * (width - len(self))

    def branches(self) -> Branches | None:
        """Describe the tree to these rows, or nothing if the order of the rows says it all."""
        work = self.work
        if work.lineage is None:
            return None
        seen = [
            (row - self.first, work.lineage[row - work.num_pending])
            for row in range(max(self.first, work.num_pending), self.last)
        ]
        return Branches(work.sequence.cached + work.num_pending, work.depths, seen)


def adjacent(spans: Sequence[Span], most: int | None = None) -> Iterator[list[int]]:
    """Split spans, taken in slot order, into runs of neighbouring slots; yields their indices."""
    order = sorted(range(len(spans)), key=lambda i: spans[i].work.sequence.slot)
    run: list[int] = []
    for i in order:
        slot = spans[i].work.sequence.slot
        if run and (slot != spans[run[-1]].work.sequence.slot + 1 or len(run) == most):
            yield run
            run = []
        run.append(i)
    if run:
        yield run
