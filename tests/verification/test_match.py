"""The match rule emits the target's own tokens, whatever the tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.types import ROOT, DraftTree
from outrider.verification import verify_match

VOCAB_SIZE = 3


@dataclass
class SpokenRows:
    """Rows of a target that always says the same after the same text."""

    speak: Callable[[tuple[int, ...]], int]
    tree: DraftTree

    def text(self, row: int) -> tuple[int, ...]:
        if row == 0:
            return ()
        return (*self.text(self.tree.parents[row - 1] + 1), self.tree.tokens[row - 1])

    def token(self, row: int) -> int:
        return self.speak(self.text(row))

    def probs(self, row: int) -> Any:
        raise AssertionError("the match rule has no use for probabilities")


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    """Trees of up to 12 nodes whose siblings carry different tokens."""
    nodes: list[tuple[int, int]] = []
    for node in range(draw(st.integers(0, 12))):
        entry = draw(st.tuples(st.integers(0, VOCAB_SIZE - 1), st.integers(ROOT, node - 1)))
        entry = entry if entry[1] < len(nodes) else (entry[0], len(nodes) - 1)
        if entry not in nodes:
            nodes.append(entry)
    return DraftTree(tuple(token for token, _ in nodes), tuple(parent for _, parent in nodes))


@settings(deadline=None)
@given(tree=trees(), words=st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=40, max_size=40))
def test_match_emits_the_target_text_as_far_as_the_tree_holds_it(
    tree: DraftTree, words: list[int]
) -> None:
    def speak(text: tuple[int, ...]) -> int:
        digits = "".join(map(str, text))
        return words[int(digits or "0", VOCAB_SIZE) % len(words)]

    rows = SpokenRows(speak, tree)
    spoken: tuple[int, ...] = ()
    drafted = {rows.text(row) for row in range(len(tree) + 1)}
    while (*spoken, speak(spoken)) in drafted:
        spoken = (*spoken, speak(spoken))

    verification = verify_match(rows, tree)

    assert tuple(tree.tokens[node] for node in verification.path) == spoken
    assert verification.next_token == speak(spoken)


def test_empty_tree_emits_one_token() -> None:
    verification = verify_match(SpokenRows(lambda _: 2, DraftTree()), DraftTree())
    assert (verification.path, verification.next_token) == ((), 2)


def test_path_names_nodes_of_the_accepted_branch() -> None:
    """CACHE-8: the path is a list of nodes, not a count that would keep the wrong branch."""
    tree = DraftTree((0, 1, 0), (-1, -1, 0))
    verification = verify_match(SpokenRows(lambda text: 1 if not text else 2, tree), tree)
    assert (verification.path, verification.next_token) == ((1,), 2)


@pytest.mark.parametrize("padding", [-1, 99])
def test_token_outside_the_vocabulary_is_never_emitted(padding: int) -> None:
    """BATCH-2: whatever stands in for a draft, only the target's token comes out."""
    tree = DraftTree.chain((padding, padding))
    verification = verify_match(SpokenRows(lambda _: 1, tree), tree)
    assert (verification.path, verification.next_token) == ((), 1)
