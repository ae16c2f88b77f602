"""Draft trees while a drafter grows them, one level at a time.

A drafter asks for the `frontier`, works out candidates for the children of its nodes, and adds
them, level after level. How the two kinds choose what to expand and what to keep is all that sets
them apart, so a drafter needs one loop for both.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.trees.shape import TreeShape
from outrider.types import NO_DRAFT, ROOT, DraftTree


class Growing(ABC):
    """One request's tree so far: node `i` carries `tokens[i]` and hangs off node `parents[i]`."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._depths: list[int] = []
        self.frontier: list[int] = [ROOT]
        """The nodes to expand next, `ROOT` at first; empty once the tree has grown up."""

    @property
    @abstractmethod
    def counts(self) -> list[int]:
        """How many children each node of the frontier is to get at most."""

    @abstractmethod
    def add(
        self,
        tokens: Sequence[Sequence[int]],
        chances: Sequence[Sequence[float]],
        q: Tensor | None = None,
    ) -> None:
        """Give each node of the frontier its children, the first to be tried first.

        `chances` are those of each child given its parent. `q` [R, V] is the law that each node's
        children were drawn from; it comes with sampled drafts and with no others.
        """

    @abstractmethod
    def tree(self, budget: int) -> DraftTree:
        """Return the draft: at most `budget` nodes."""

    def depth(self, node: int) -> int:
        """Return how far below the root a node is; 0 for the root."""
        return 0 if node == ROOT else self._depths[node]

    def path(self, node: int) -> list[int]:
        """Return the nodes from the root down to this one; none for the root."""
        found: list[int] = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node]
        return found[::-1]

    def paths(self) -> list[list[int]]:
        """Return for each node of the frontier the tokens from the root down to it."""
        return [[self.tokens[node] for node in self.path(leaf)] for leaf in self.frontier]

    def lineage(self) -> tuple[DraftTree, list[int]]:
        """Return the tree of the frontier and its ancestors, and the frontier's rows in it.

        This is all that a model has to read for the next level. Row 0 is the root, row `i + 1`
        node `i`.
        """
        wanted = sorted({node for leaf in self.frontier for node in self.path(leaf)})
        row = {ROOT: 0} | {node: place for place, node in enumerate(wanted, 1)}
        tree = DraftTree(
            tuple(self.tokens[node] for node in wanted),
            tuple(row[self.parents[node]] - 1 for node in wanted),
        )
        return tree, [row[node] for node in self.frontier]

    def _extend(self, parent: int, tokens: Sequence[int]) -> range:
        """Hang tokens off a node, and return the nodes that carry them."""
        first, count = len(self.tokens), len(tokens)
        self.tokens += tokens
        self.parents += [parent] * count
        self._depths += [self.depth(parent) + 1] * count
        return range(first, first + count)


class Growth(Growing):
    """A deterministic draft that grows where it is likeliest to be accepted.

    Of each level the `width` likeliest nodes are expanded, by `width` children each; of all nodes
    the likeliest make the draft (EAGLE-2, Li et al. 2406.16858, section 4). Where the size of the
    draft is known, what is foreseen not to be part of it is not expanded.
    """

    def __init__(self, width: int, budget: int | None = None, depth: int | None = None) -> None:
        """`budget` and `depth`: the most nodes and levels of the draft, if both are known."""
        super().__init__()
        self.width = width
        self._budget = budget
        self._most_levels = depth
        self._expanded = 0.0  # how likely the nodes are, all together, that got children
        self._followed = 0.0  # and their likeliest children
        self.chances: list[float] = []
        """That each node is accepted, its ancestors with it."""

    def start(self, run: Sequence[int]) -> None:
        """Begin with tokens that are sure to be accepted, and grow behind the last of them."""
        for token in run:
            self.frontier = list(self._extend(self.frontier[0], [token]))
            self.chances.append(1.0)

    @property
    def counts(self) -> list[int]:
        return [self.width] * len(self.frontier)

    def add(
        self,
        tokens: Sequence[Sequence[int]],
        chances: Sequence[Sequence[float]],
        q: Tensor | None = None,
    ) -> None:
        if q is not None:
            raise ValueError("a sampled draft cannot grow by the tokens that were drawn")
        first = len(self.tokens)
        for parent, drafted, likely in zip(self.frontier, tokens, chances, strict=True):
            reached = 1.0 if parent == ROOT else self.chances[parent]
            self._extend(parent, drafted)
            # Rounding must not make a child likelier than its parent.
            below = [reached * min(1.0, chance) for chance in likely]
            self.chances += below
            self._expanded += reached
            self._followed += max(below, default=0.0)
        level = range(first, len(self.tokens))
        self.frontier = sorted(self._worth_expanding(self._likeliest(level, self.width)))

    def tree(self, budget: int) -> DraftTree:
        """Return the draft of the `budget` likeliest nodes, with their chances."""
        kept = sorted(self._likeliest(range(len(self.tokens)), budget))
        if not kept:
            return NO_DRAFT
        # Chances fall along every path and parents come first among equals: none is missing.
        index = {ROOT: ROOT} | {node: place for place, node in enumerate(kept)}
        return DraftTree(
            tokens=tuple(self.tokens[node] for node in kept),
            parents=tuple(index[self.parents[node]] for node in kept),
            chances=tuple(self.chances[node] for node in kept),
        )

    def _worth_expanding(self, nodes: list[int]) -> list[int]:
        """Return those nodes of the newest level whose children are foreseen to be in the draft.

        A child is taken to be as likely after its parent as the likeliest children have been so
        far. It is not in the draft if as many others are likelier as the draft may hold, where the
        nodes of lines that are still to grow count as well.
        """
        if self._budget is None or self._most_levels is None or len(self.chances) < self._budget:
            return nodes
        least = heapq.nlargest(self._budget, self.chances)[-1]
        foreseen = list(self.chances)
        rate = self._followed / self._expanded if self._expanded else 0.0
        for node in nodes:
            chance = self.chances[node] * rate
            for _ in range(self._most_levels - self._depths[node]):
                if chance <= least:
                    break
                foreseen.append(chance)
                chance *= rate
        least = heapq.nlargest(self._budget, foreseen)[-1]
        return [node for node in nodes if self.chances[node] * rate >= least]

    def _likeliest(self, nodes: range, count: int) -> list[int]:
        """Return so many of the nodes, the earliest of equals."""
        return sorted(nodes, key=self.chances.__getitem__, reverse=True)[:count]


class SampledGrowing(Growing):
    """A tree that is drawn, and stays as it was drawn: every node comes with the law it is from."""

    def __init__(self) -> None:
        super().__init__()
        self._laws: list[Tensor] = []

    def tree(self, budget: int) -> DraftTree:
        """Return the whole draft with its laws; a `budget` below the shape's size is an error."""
        if len(self.tokens) > budget:
            raise ValueError(f"{len(self.tokens)} sampled nodes where {budget} were asked for")
        if not self.tokens:
            return NO_DRAFT
        return DraftTree(tuple(self.tokens), tuple(self.parents), torch.stack(self._laws))


class ShapedGrowth(SampledGrowing):
    """A sampled draft, of a shape that was settled before anything was drawn.

    Which nodes exist must not depend on the tokens drawn, so every node of the shape stays in the
    draft. Only where the draft distribution has fewer tokens than the shape has children, the
    rest and all below them are missing: that depends on the distribution alone.
    """

    def __init__(self, shape: TreeShape) -> None:
        if not shape.has_all_ranks:
            raise ValueError("a sampled draft has its children in the order they were drawn")
        super().__init__()
        self._below = shape.children()
        self._places = [ROOT]  # of the frontier in the shape
        if not len(shape):
            self.frontier = []

    @property
    def counts(self) -> list[int]:
        return [len(self._below[place + 1]) for place in self._places]

    def add(
        self,
        tokens: Sequence[Sequence[int]],
        chances: Sequence[Sequence[float]],
        q: Tensor | None = None,
    ) -> None:
        if q is None:
            raise ValueError("a sampled draft needs the laws it was drawn from")
        grown: list[tuple[int, int]] = []
        for parent, place, drafted, law in zip(self.frontier, self._places, tokens, q, strict=True):
            below = self._below[place + 1]
            nodes = self._extend(parent, drafted[: len(below)])
            grown += zip(nodes, below, strict=False)
            self._laws += [law] * len(nodes)
        inner = [(node, place) for node, place in grown if self._below[place + 1]]
        self.frontier = [node for node, _ in inner]
        self._places = [place for _, place in inner]
