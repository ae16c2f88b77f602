"""The best shape of a tree where a child's acceptance depends on its rank alone.

Sequoia's dynamic program (Chen et al. 2402.12374, section 3.1), over the number of nodes, the
levels left and the rank of the next child.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add


class Plan:
    """Trees of up to `nodes` nodes and `depth` levels, each accepted as far as can be.

    `rank_chances[r]` is the probability that a node's child of rank r is the accepted one.
    """

    def __init__(self, rank_chances: Sequence[float], nodes: int, depth: int) -> None:
        self._chances = rank_chances
        # Tokens a pass yields (one of its own, and those accepted), with n nodes below the root.
        self._tokens = [[1.0] * (nodes + 1)]
        # Sizes of the subtree at the child of rank r, with n nodes for it and all later children.
        self._sizes: list[list[list[int]]] = [[]]
        for _ in range(depth):
            tokens, sizes = self._level(nodes, self._tokens[-1])
            self._tokens.append(tokens)
            self._sizes.append(sizes)

    def tokens(self, nodes: int, depth: int) -> float:
        """Return the tokens that a pass over the best tree of that size is expected to yield."""
        return self._tokens[depth][nodes]

    def paths(self, nodes: int, depth: int) -> Iterator[tuple[int, ...]]:
        """Yield the nodes of the best tree of that size, as paths of ranks from the root."""
        if depth == 0:
            return
        for rank, sizes in enumerate(self._sizes[depth]):
            size = sizes[nodes]
            if size == 0:
                return
            yield (rank,)
            for path in self.paths(size - 1, depth - 1):
                yield (rank, *path)
            nodes -= size

    def _level(self, nodes: int, below: list[float]) -> tuple[list[float], list[list[int]]]:
        """Work out trees one level deeper than those with `below` tokens."""
        later = [0.0] * (nodes + 1)  # accepted through the children of later ranks
        sizes: list[list[int]] = []
        for chance in reversed(self._chances):
            gains = [chance * tokens for tokens in below]
            best, chosen = [0.0], [0]
            for most in range(1, nodes + 1):
                # A subtree of s nodes has s - 1 below its own root.
                values = list(map(add, gains[:most], later[most - 1 :: -1]))
                value = max(values)
                # No node where none helps: what remains is left to no one.
                chosen.append(values.index(value) + 1 if value > 0 else 0)
                best.append(value)
            later = best
            sizes.insert(0, chosen)
        return [1 + accepted for accepted in later], sizes
