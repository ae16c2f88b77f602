"""Shapes of draft trees that are settled before anything is drafted.

A shape says how many children each node gets, not which tokens. It may rest on how often drafts of
each rank were accepted so far, never on the tokens of the draft at hand: so it may be used for
drafts that are sampled, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush

from outrider.trees.sequoia import Plan
from outrider.types import ROOT

RANK_CHANCES = (0.7, 0.13, 0.06, 0.03, 0.02, 0.012, 0.008, 0.006)
"""How often the children of a node, in the order they are tried, are the accepted one: a guess
for drafters that nobody has measured."""


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Nodes without tokens: node `i` is the `ranks[i]`-th child (from 0) of node `parents[i]`.

    A parent precedes its children, and the children of one parent stand in the order of their
    ranks, which may leave some out.
    """

    parents: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.ranks):
            raise ValueError(f"{len(self.parents)} parents but {len(self.ranks)} ranks")
        last: dict[int, int] = {}
        for node, (parent, rank) in enumerate(zip(self.parents, self.ranks, strict=True)):
            if not ROOT <= parent < node:
                raise ValueError(f"node {node} has parent {parent}: parents precede children")
            if rank <= last.get(parent, -1):
                raise ValueError(f"node {node} has rank {rank}: children stand in rank order")
            last[parent] = rank

    @classmethod
    def of_paths(cls, paths: Iterable[Sequence[int]]) -> TreeShape:
        """Build the shape whose nodes are reached by these paths of ranks, all prefixes among them.

        The nodes come level by level. Raises ValueError for a path whose parent is missing.
        """
        index: dict[tuple[int, ...], int] = {(): ROOT}
        ordered = sorted({tuple(path) for path in paths} - {()}, key=lambda path: (len(path), path))
        for node, path in enumerate(ordered):
            if path[:-1] not in index:
                raise ValueError(f"path {list(path)} has no parent among the paths")
            index[path] = node
        parents = tuple(index[path[:-1]] for path in ordered)
        return cls(parents, tuple(path[-1] for path in ordered))

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def depth(self) -> int:
        """Nodes on the longest way down; 0 for the empty shape."""
        return len(self.levels())

    def levels(self) -> list[list[int]]:
        """Return the nodes of each depth, the root's children first."""
        depths: list[int] = []
        found: list[list[int]] = []
        for node, parent in enumerate(self.parents):
            depths.append(0 if parent == ROOT else depths[parent] + 1)
            if depths[-1] == len(found):
                found.append([])
            found[depths[-1]].append(node)
        return found

    def children(self) -> list[list[int]]:
        """Return the children of the root, then those of each node, in rank order."""
        found: list[list[int]] = [[] for _ in range(len(self) + 1)]
        for node, parent in enumerate(self.parents):
            found[parent + 1].append(node)
        return found

    @property
    def has_all_ranks(self) -> bool:
        """Whether no node has a child without having those of lower ranks."""
        return all(
            self.ranks[node] == place
            for below in self.children()
            for place, node in enumerate(below)
        )


def depth_for(nodes: int) -> int:
    """Return how deep a tree of so many nodes is drafted: one level more for each doubling.

    Every level costs the drafter a pass. A tree twice as large does better to grow a level and to
    branch more than to grow twice as deep, as chances fall off with depth.
    """
    return nodes.bit_length()


def greedy_shape(accuracies: Sequence[Sequence[float]], nodes: int) -> TreeShape:
    """Return the shape of at most `nodes` nodes whose acceptance, summed over them, is highest.

    `accuracies[d][r]` is the probability that the child of rank r, at depth d from 0, is the
    accepted one given that its parent is: the static tree of Medusa (Cai et al. 2401.10774).
    """
    return TreeShape.of_paths(path for path, _ in _greedy_paths(accuracies, nodes))


def greedy_chances(accuracies: Sequence[Sequence[float]], nodes: int) -> list[float]:
    """Return the acceptance of each node of the greedy shape, in falling order."""
    return [chance for _, chance in _greedy_paths(accuracies, nodes)]


def _greedy_paths(
    accuracies: Sequence[Sequence[float]], nodes: int
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield at most so many paths of ranks, the likeliest first, each with its chance."""
    heap: list[tuple[float, int, tuple[int, ...]]] = []

    def push_children(path: tuple[int, ...], chance: float) -> None:
        if len(path) < len(accuracies):
            for rank, accuracy in enumerate(accuracies[len(path)]):
                if chance * accuracy > 0:
                    heappush(heap, (-chance * accuracy, len(path), (*path, rank)))

    push_children((), 1.0)
    for _ in range(nodes):
        if not heap:
            return
        chance, _, path = heappop(heap)
        yield path, -chance
        push_children(path, -chance)


def sequoia_shape(rank_chances: Sequence[float], nodes: int, depth: int) -> TreeShape:
    """Return the shape of at most `nodes` nodes and `depth` levels that is accepted furthest.

    `rank_chances[r]` is the probability that a node's child of rank r is the accepted one, at any
    depth (Sequoia, Chen et al. 2402.12374, section 3.1).
    """
    plan = Plan(rank_chances, nodes, depth)
    return TreeShape.of_paths(plan.paths(nodes, depth))


@lru_cache(maxsize=256)
def usual_shape(nodes: int, width: int, depth: int) -> TreeShape:
    """Return the shape of a sampled tree for a drafter nobody has measured, kept once worked out.

    No node has more than `width` children; a shape of width 1 is a chain.
    """
    return sequoia_shape(RANK_CHANCES[:width], nodes, depth)


def best_sequoia_shape(
    rank_chances: Sequence[float],
    pass_seconds: Callable[[int], float],
    step_seconds: float,
    max_nodes: int,
    max_depth: int,
) -> TreeShape:
    """Return the shape, perhaps the empty one, that yields the most tokens a second.

    `pass_seconds(rows)` is what a pass of the target takes, the root's row counted, and
    `step_seconds` what drafting one more level does (Sequoia, section 3.3).
    """
    plan = Plan(rank_chances, max_nodes, max_depth)
    costs = [pass_seconds(1 + nodes) for nodes in range(max_nodes + 1)]
    best, best_rate = (0, 0), 1 / costs[0]
    for depth in range(1, max_depth + 1):
        for nodes in range(depth, max_nodes + 1):
            rate = plan.tokens(nodes, depth) / (costs[nodes] + depth * step_seconds)
            if rate > best_rate:
                best, best_rate = (nodes, depth), rate
    return TreeShape.of_paths(plan.paths(*best))
