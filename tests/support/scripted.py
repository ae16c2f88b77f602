"""Fakes with known answers: a target that returns given rows, drafters that follow a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outrider.drafters.base import Drafter, DraftRequest
from outrider.targets.base import Rows, ScoredRows, Target
from outrider.trees.layout import row_paths
from outrider.types import DraftTree, TokenIds

Logits = Callable[[tuple[int, ...]], Sequence[float]]
"""What a scripted model says after a whole context (prompt included)."""


@dataclass
class _Held:
    tokens: list[int] = field(default_factory=list)
    staged: tuple[tuple[int, ...], DraftTree] | None = None


class ScriptedTarget(Target):
    """A target whose logits are a function of the context, with the cache a real one has."""

    preferred_rows = None

    def __init__(self, logits: Logits, vocab_size: int, max_positions: int = 10_000) -> None:
        self._logits = logits
        self.vocab_size = vocab_size
        self.max_positions = max_positions
        self.device = torch.device("cpu")
        self.held: dict[int, _Held] = {}
        self.passes: list[list[Rows]] = []

    @classmethod
    def saying(cls, text: Sequence[int], vocab_size: int, prompt: int = 1) -> ScriptedTarget:
        """Return a target whose greedy text after `prompt` tokens is the given one, again and again."""

        def logits(context: tuple[int, ...]) -> list[float]:
            row = [0.0] * vocab_size
            row[text[(len(context) - prompt) % len(text)]] = 10.0
            return row

        return cls(logits, vocab_size)

    def open(self, max_tokens: int) -> int:
        handle = max(self.held, default=-1) + 1
        self.held[handle] = _Held()
        return handle

    def score(self, rows: Sequence[Rows]) -> ScoredRows:
        self.passes.append(list(rows))
        return ScoredRows(tuple(self._score(part) for part in rows), 0.0)

    def _score(self, rows: Rows) -> Tensor:
        assert rows.pending, "a pass needs a root"
        assert all(0 <= token < self.vocab_size for token in rows.tree.tokens)
        held = self.held[rows.sequence]
        held.staged = (rows.pending, rows.tree)
        context = (*held.tokens, *rows.pending)
        found = [list(self._logits(context + path)) for path in row_paths(rows.tree)]
        return torch.tensor(found, dtype=torch.float64)

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        held = self.held[sequence]
        assert held.staged is not None
        pending, tree = held.staged
        parent = -1
        for node in path:
            assert tree.parents[node] == parent, "the path does not follow the tree"
            parent = node
        held.tokens += [*pending, *(tree.tokens[node] for node in path)]
        held.staged = None

    def cached(self, sequence: int) -> int:
        return len(self.held[sequence].tokens)

    def crop(self, sequence: int, length: int) -> None:
        assert length <= len(self.held[sequence].tokens)
        del self.held[sequence].tokens[length:]

    def close(self, sequence: int) -> None:
        del self.held[sequence]


class ScriptedDrafter(Drafter[list[int]]):
    """Proposes what a function of all committed tokens and the budget says; records its calls."""

    name = "scripted"

    def __init__(self, propose: Callable[[tuple[int, ...], int], DraftTree]) -> None:
        self._propose = propose
        self.proposals: list[DraftTree] = []
        self.open_states = 0

    def begin(self, request: DraftRequest) -> list[int]:
        self.open_states += 1
        return list(request.prompt_ids)

    def propose(self, states: Sequence[list[int]], budgets: Sequence[int]) -> list[DraftTree]:
        trees = [self._propose(tuple(s), b) for s, b in zip(states, budgets, strict=True)]
        self.proposals += trees
        return trees

    def observe(self, states: Sequence[list[int]], committed: Sequence[TokenIds]) -> None:
        for state, tokens in zip(states, committed, strict=True):
            state.extend(tokens)

    def end(self, state: list[int]) -> None:
        self.open_states -= 1


def oracle(continuation: Sequence[int], prompt: int, wrong: int | None = None) -> ScriptedDrafter:
    """Return a drafter that knows the text; with `wrong`, each third of its tokens is that one."""

    def propose(context: tuple[int, ...], budget: int) -> DraftTree:
        start = len(context) - prompt
        tokens = list(continuation[start : start + budget])
        if wrong is not None:
            tokens = [wrong if i % 3 == 2 else token for i, token in enumerate(tokens)]
        return DraftTree.chain(tokens)

    return ScriptedDrafter(propose)


def always(token: int) -> ScriptedDrafter:
    """Return a drafter that proposes the same token over and over."""
    return ScriptedDrafter(lambda _, budget: DraftTree.chain([token] * budget))


def silent() -> ScriptedDrafter:
    """Return a drafter that never proposes anything."""
    return ScriptedDrafter(lambda *_: DraftTree())
