"""Which nodes of a draft could be emitted, whatever the target says."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from outrider.sampling.grammar_state import GrammarState
from outrider.trees.layout import depths, prune, worth_scoring
from outrider.trees.runs import lengthen
from outrider.types import DraftTree, TokenIds


def trimmed(
    tree: DraftTree, *, room: int, grammar: GrammarState | None, is_final: Callable[[int], bool]
) -> DraftTree:
    """Drop the nodes past `room` tokens, outside the grammar, and ends of text (`is_final`).

    An end of text is not worth a row: when the target draws it, the request ends without one.
    A sampled node stays whatever it carries: under the rules that reject, whether a node is
    submitted must not depend on the token drawn for it. Only what no rule comes to may go.
    """
    is_drawn = tree.q is not None
    may_pass = [True] * len(tree) if grammar is None else grammar.reachable(tree)
    allowed = worth_scoring(tree, may_pass)
    keep = [
        level <= room and is_allowed and (is_drawn or not is_final(token))
        for token, level, is_allowed in zip(tree.tokens, depths(tree), allowed, strict=True)
    ]
    return tree if all(keep) else prune(tree, keep)


def completed(
    tree: DraftTree,
    budget: int,
    *,
    room: int,
    grammar: GrammarState,
    is_final: Callable[[int], bool],
) -> DraftTree:
    """Hang what the grammar forces on the leaves of a draft that was worked out, not drawn.

    It grows to `budget` nodes, `room` tokens and the end of the text at most.
    """
    if tree.q is not None or not len(tree):
        return tree

    def following(path: TokenIds, limit: int) -> list[int]:
        run = grammar.forced(min(limit, room - len(path)), path)
        return list(takewhile(lambda token: not is_final(token), run))

    return lengthen(tree, budget, following)
