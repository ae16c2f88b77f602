"""A draft that is checked against what its request commits, whether or not it was scored.

A lookup drafter's draft costs nothing to check this way, so that what a drafter would achieve
stays known while it is not worth a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.engine.acceptance import Acceptance, conditional
from outrider.trees.layout import children
from outrider.types import DraftTree, TokenIds

_AGAINST_ALL_ODDS = 0.005


class Trial:
    """Follows committed tokens through a draft, and tells `Acceptance` how each token fared.

    A drafted token is taken to be accepted if it is the one committed in its place: a rejected
    token is hardly ever the one recovered for it.
    """

    __slots__ = ("_acceptance", "_below", "_depth", "_node", "_odds", "_tree")

    def __init__(self, tree: DraftTree, acceptance: Acceptance) -> None:
        self._tree = tree
        self._acceptance = acceptance
        self._below = None if tree.is_chain else children(tree)
        self._node = -1
        self._depth = 0
        self._odds = 1.0  # of having been right so far

    def follow(self, tokens: TokenIds) -> bool:
        """Take in committed tokens; return whether the draft still holds and goes on."""
        for token in tokens:
            nodes = self._children()
            if not nodes:
                return False
            found = next((node for node in nodes if self._tree.tokens[node] == token), None)
            self._learn(nodes, found)
            if found is None:
                return False
            self._node = found
            self._depth += 1
            if self._odds < _AGAINST_ALL_ODDS:
                self._acceptance.turn()
                self._odds = 1.0
        return bool(self._children())

    def _children(self) -> Sequence[int]:
        following = self._node + 1
        if self._below is not None:
            return self._below[following]
        return (following,) if following < len(self._tree) else ()

    def _learn(self, nodes: Sequence[int], found: int | None) -> None:
        chances = self._tree.chances
        if chances is None:
            self._odds *= self._acceptance.learn(self._depth, found is not None)
            return
        reached = chances[self._node] if self._node >= 0 else 1.0
        for node in nodes:
            chance = conditional(chances[node], reached)
            expected = self._acceptance.learn_chance(chance, node == found)
            if node == found:
                self._odds *= expected
