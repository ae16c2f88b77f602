"""Fakes with known answers: a target that returns given rows, drafters that follow a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import torch
from torch import Tensor

from outrider.drafters.base import Drafter, DraftRequest, DraftSampler, TextDrafter
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
    scores_prompts = True

    def __init__(self, logits: Logits, vocab_size: int, max_positions: int = 10_000) -> None:
        self._logits = logits
        self.vocab_size = vocab_size
        self.max_positions = max_positions
        self.device = torch.device("cpu")
        self.held: dict[int, _Held] = {}
        self.passes: list[list[Rows]] = []

    @classmethod
    def saying(cls, text: Sequence[int], vocab_size: int, prompt: int = 1) -> ScriptedTarget:
        """Return a target whose greedy text after `prompt` tokens is the given one, repeated."""

        def logits(context: tuple[int, ...]) -> list[float]:
            row = [0.0] * vocab_size
            row[text[(len(context) - prompt) % len(text)]] = 10.0
            return row

        return cls(logits, vocab_size)

    def open(self, max_tokens: int) -> int:
        handle = max(self.held, default=-1) + 1
        self.held[handle] = _Held()
        return handle

    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        self.passes.append(list(rows))
        return ScoredRows(tuple(self._score(part) for part in rows), 0.0)

    def _score(self, rows: Rows) -> Tensor:
        assert rows.pending, "a pass needs a root"
        assert all(0 <= token < self.vocab_size for token in rows.tree.tokens)
        held = self.held[rows.sequence]
        held.staged = (rows.pending, rows.tree)
        context = (*held.tokens, *rows.pending)
        contexts = [context + path for path in row_paths(rows.tree)]
        if rows.scores_pending:
            first = len(held.tokens) + 1
            contexts = [*(context[:end] for end in range(first, len(context))), *contexts]
        found = [list(self._logits(one)) for one in contexts]
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


class ScriptedDrafter(TextDrafter):
    """Proposes what a function of all committed tokens and the budget says; records its calls."""

    name = "scripted"

    def __init__(self, propose: Callable[[tuple[int, ...], int], DraftTree]) -> None:
        self._propose = propose
        self.proposals: list[DraftTree] = []
        self.open_states = 0

    def begin(self, request: DraftRequest) -> list[int]:
        self.open_states += 1
        return super().begin(request)

    def propose(self, states: Sequence[list[int]], budgets: Sequence[int]) -> list[DraftTree]:
        trees = [self._propose(tuple(s), b) for s, b in zip(states, budgets, strict=True)]
        self.proposals += trees
        return trees

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


def random_tokens(vocab_size: int, seed: int = 0) -> ScriptedDrafter:
    """Return a drafter that proposes tokens drawn evenly, as many as it may."""
    random = Random(seed)
    return ScriptedDrafter(
        lambda _, budget: DraftTree.chain([random.randrange(vocab_size) for _ in range(budget)])
    )


def random_trees(vocab_size: int, seed: int = 0, *, knows: Logits | None = None) -> ScriptedDrafter:
    """Return a drafter that grows trees of random shape, some of whose tokens are likely ones.

    With `knows`, every second token or so is the favourite of those logits after its own path.
    """
    random = Random(seed)

    def propose(context: tuple[int, ...], budget: int) -> DraftTree:
        tokens: list[int] = []
        parents: list[int] = []
        paths: list[tuple[int, ...]] = [()]
        for _ in range(random.randint(0, budget)):
            parent = random.randrange(-1, len(tokens))
            token = random.randrange(vocab_size)
            if knows is not None and random.random() < 0.6:
                row = list(knows(context + paths[parent + 1]))
                token = row.index(max(row))
            if (parent, token) in zip(parents, tokens, strict=True):
                continue  # siblings differ
            tokens.append(token)
            parents.append(parent)
            paths.append((*paths[parent + 1], token))
        return DraftTree(tuple(tokens), tuple(parents))

    return ScriptedDrafter(propose)


@dataclass
class _Sampling:
    tokens: list[int]
    sampler: DraftSampler


class SamplingDrafter(Drafter[_Sampling]):
    """Draws chains from given draft logits with the request's own sampler, as a draft model does.

    `mislabel` changes the q it hands over, for showing that a check would notice.
    """

    name = "sampling"

    def __init__(
        self, logits: Logits, *, mislabel: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self._logits = logits
        self._mislabel = mislabel

    def begin(self, request: DraftRequest) -> _Sampling:
        return _Sampling(list(request.prompt_ids), request.sampler)

    def propose(self, states: Sequence[_Sampling], budgets: Sequence[int]) -> list[DraftTree]:
        return [self._chain(s, b) for s, b in zip(states, budgets, strict=True)]

    def observe(
        self,
        states: Sequence[_Sampling],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        for state, tokens in zip(states, committed, strict=True):
            state.tokens.extend(tokens)

    def _chain(self, state: _Sampling, budget: int) -> DraftTree:
        tokens: list[int] = []
        laws: list[Tensor] = []
        for _ in range(budget):
            context = (*state.tokens, *tokens)
            logits = torch.tensor(list(self._logits(context)), dtype=torch.float64)
            token, law = state.sampler.draw(logits, len(context))
            tokens.append(token)
            if law is not None:
                laws.append(law if self._mislabel is None else self._mislabel(law))
        return DraftTree.chain(tokens, torch.stack(laws) if laws else None)
