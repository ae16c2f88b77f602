"""Drafters that a proof brings along: what they draft is known, and hard on the rules.

One knows the text and errs on purpose, so that drafts are accepted at every depth and rejected at
every depth. The other draws from the target's own distribution turned upside down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from outrider.drafters.base import Drafter, DraftRequest, DraftSampler, TextDrafter
from outrider.trees.growth import ShapedGrowth
from outrider.trees.shape import TreeShape
from outrider.types import NO_DRAFT, DraftTree, TokenIds

_RIGHT = 0.8  # share of the nodes that carry on the text
_EXPANDED = 2  # nodes of a level that get children, the one on the text among them


@dataclass(slots=True)
class _Told:
    """What a request is going to say, and how much of it is committed."""

    text: tuple[int, ...]
    committed: int


class TellingDrafter(Drafter[_Told]):
    """Drafts the prediction it is given, here and there with wrong tokens, and with branches.

    Drafts at one place of a text are the same whenever they are asked for. With `width` 1 they
    are chains, which go on with the text even after a wrong token.
    """

    name = "telling"
    is_lookup = True

    def __init__(self, vocab_size: int, *, width: int = 1) -> None:
        self._vocab_size = vocab_size
        self._width = width

    def begin(self, request: DraftRequest) -> _Told:
        return _Told(tuple(request.prediction_ids or ()), 0)

    def propose(self, states: Sequence[_Told], budgets: Sequence[int]) -> list[DraftTree]:
        return [
            self._draft(state.text[state.committed :], budget, Random(f"told {state.committed}"))
            for state, budget in zip(states, budgets, strict=True)
        ]

    def observe(
        self,
        states: Sequence[_Told],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        for state, tokens in zip(states, committed, strict=True):
            state.committed += len(tokens)

    def _draft(self, ahead: Sequence[int], budget: int, random: Random) -> DraftTree:
        tokens: list[int] = []
        parents: list[int] = []
        frontier = [-1]
        for right in ahead:
            level: list[int] = []
            for parent in frontier:
                children = self._children(right, random)[: budget - len(tokens)]
                level += range(len(tokens), len(tokens) + len(children))
                tokens += children
                parents += [parent] * len(children)
            if not level:
                break
            # Any branch may go on, the wrong ones too: what is below them must stay unseen.
            frontier = sorted(random.sample(level, min(_EXPANDED, len(level))))
            if self._width > 1 and random.random() < _RIGHT:
                on_text = [node for node in level if tokens[node] == right]
                frontier = sorted({*frontier[1:], on_text[0]}) if on_text else frontier
        return DraftTree(tuple(tokens), tuple(parents)) if tokens else NO_DRAFT

    def _children(self, right: int, random: Random) -> list[int]:
        """Return different tokens, the right one probably among them."""
        count = random.randint(1, self._width)
        wrong = [(right + step) % self._vocab_size for step in range(1, count + 1)]
        if random.random() < _RIGHT:
            wrong[random.randrange(count)] = right
        return list(dict.fromkeys(wrong))


Logits = Callable[[tuple[int, ...]], Tensor]
"""The target's logits [V] after a context."""


class LikelyDrafter(TextDrafter):
    """Drafts the target's likeliest tokens in a tree of one shape: worked out, so without q."""

    name = "likely"
    is_lookup = True

    def __init__(self, logits: Logits, shape: TreeShape) -> None:
        self._logits = logits
        self._shape = shape
        self._ranked: dict[tuple[int, ...], list[int]] = {}
        """The likeliest tokens after each context, as many as a node has children at most."""

    def propose(self, states: Sequence[list[int]], budgets: Sequence[int]) -> list[DraftTree]:
        return [
            self._draft(state, _within(self._shape, budget))
            for state, budget in zip(states, budgets, strict=True)
        ]

    def _draft(self, tokens: Sequence[int], shape: TreeShape) -> DraftTree:
        paths: list[tuple[int, ...]] = []
        for parent, rank in zip(shape.parents, shape.ranks, strict=True):
            above = paths[parent] if parent >= 0 else ()
            paths.append((*above, self._likeliest((*tokens, *above))[rank]))
        return DraftTree(tuple(path[-1] for path in paths), shape.parents)

    def _likeliest(self, context: tuple[int, ...]) -> list[int]:
        if context not in self._ranked:
            count = 1 + max(self._shape.ranks)
            self._ranked[context] = self._logits(context).topk(count).indices.tolist()
        return self._ranked[context]


@dataclass(slots=True)
class _Drawing:
    tokens: list[int]
    sampler: DraftSampler


class ContraryDrafter(Drafter[_Drawing]):
    """Draws trees of one shape from the target's likeliest tokens, the least likely of them first.

    So p and q differ much, and much is rejected. A fault of the rule, or of the noise, that good
    drafts would hide is plain to see.
    """

    name = "contrary"
    reads_text = False

    def __init__(
        self, logits: Logits, shape: TreeShape, *, support: int, is_false: bool = False
    ) -> None:
        """The `support` highest logits count.

        `is_false` makes it a liar: the q it tells is the target's own, not the one it draws from.
        """
        self._logits = logits
        self._shape = shape
        self._support = support
        self._is_false = is_false
        self._turned: dict[tuple[int, ...], Tensor] = {}
        self.drafts_trees = any(parent != i - 1 for i, parent in enumerate(shape.parents))

    def begin(self, request: DraftRequest) -> _Drawing:
        return _Drawing(list(request.prompt_ids), request.sampler)

    def propose(self, states: Sequence[_Drawing], budgets: Sequence[int]) -> list[DraftTree]:
        return [
            self._draft(state, _within(self._shape, budget))
            for state, budget in zip(states, budgets, strict=True)
        ]

    def observe(
        self,
        states: Sequence[_Drawing],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        for state, tokens in zip(states, committed, strict=True):
            state.tokens.extend(tokens)

    def draft_logits(self, context: tuple[int, ...]) -> Tensor:
        """Return the logits [V] that are drawn from after a context."""
        if context not in self._turned:
            logits = self._logits(context)
            highest = logits.topk(self._support)
            turned = torch.full_like(logits, float("-inf"))
            self._turned[context] = turned.index_copy_(0, highest.indices, highest.values.flip(0))
        return self._turned[context]

    def _draft(self, state: _Drawing, shape: TreeShape) -> DraftTree:
        if not state.sampler.has_laws:
            return NO_DRAFT
        growth = ShapedGrowth(shape)
        while growth.frontier:
            contexts = [
                (*state.tokens, *(growth.tokens[above] for above in growth.path(node)))
                for node in growth.frontier
            ]
            rows = torch.stack([self.draft_logits(context) for context in contexts])
            positions = [len(context) for context in contexts]
            found = state.sampler.candidates(rows, positions, max(growth.counts))
            told = self._false_law(contexts) if self._is_false else found.q
            growth.add(found.tokens, found.chances, told)
        return growth.tree(len(shape))

    def _false_law(self, contexts: Sequence[tuple[int, ...]]) -> Tensor:
        """Return a q [R, V] that nothing was drawn from, though all of it could have been."""
        own = torch.stack([self._logits(context) for context in contexts])
        return own.float().softmax(-1).cpu().clamp(min=1e-12)


def _within(shape: TreeShape, nodes: int) -> TreeShape:
    """Return the first nodes of a shape; a parent precedes its children."""
    return TreeShape(shape.parents[:nodes], shape.ranks[:nodes])
