"""The rows one sequence wants scored, and the stretches of them that share a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional

from outrider.targets.base import Rows
from outrider.targets.padded import Branches
from outrider.trees.layout import ancestors, depths

if TYPE_CHECKING:
    from outrider.targets.early_exit import Held


@dataclass(slots=True)
class CachedSequence:
    """Where a sequence is stored and how much of it is committed."""

    slot: int
    cached: int = 0
    staged: tuple[int, int] | None = None
    """Pending tokens and nodes of the last pass, until they are committed."""
    held: Held | None = None
    """Rows beyond those cached that the model's first layers have run, for drafts."""

    def let_go(self) -> Held | None:
        """Return what is held; nothing is, from now on."""
        held, self.held = self.held, None
        return held


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
    """Of the rows from `first_wanted` on, part by part."""
    features: list[Tensor] = field(default_factory=list)
    """Of all rows that were run, part by part, if any were asked for."""
    done: int = 0
    """The first rows that need not be run: they have been."""
    wants_logits: bool = True
    scores_pending: bool = False
    entering: Tensor | None = None
    """What enters the first layer of all rows [rows, H], where the layers before have run."""

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
            scores_pending=rows.scores_pending,
        )

    @property
    def root(self) -> int:
        """The row of the last committed token, from which on logits are wanted at the least."""
        return self.num_pending - 1

    @property
    def first_wanted(self) -> int:
        """The first row whose logits are wanted."""
        if not self.wants_logits:
            return len(self.tokens)
        return 0 if self.scores_pending else self.root

    @property
    def num_linear(self) -> int:
        """How many rows, from the first on, each follow the one before: all of them in a chain."""
        levels = enumerate(self.depths, 1)
        return self.num_pending + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], levels))

    @property
    def is_open(self) -> bool:
        """Whether any row is still to be run."""
        return self.done < len(self.tokens)

    def split(self, done: int) -> Work:
        """Return the work of the rows from `done` on, for their states alone."""
        return replace(self, logits=[], features=[], done=done, wants_logits=False)

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

    @property
    def unwanted(self) -> int:
        """How many rows, from the first on, come before those whose logits are wanted."""
        return min(len(self), max(0, self.work.first_wanted - self.first))

    def entering(self, width: int) -> Tensor:
        """Return what enters the first layer that runs [width, H]; nobody looks beyond the span."""
        assert self.work.entering is not None
        states = self.work.entering[self.first : self.last]
        return functional.pad(states, (0, 0, 0, width - len(self)))

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
