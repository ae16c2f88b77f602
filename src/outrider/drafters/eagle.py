"""EAGLE drafting: a small head goes on from the target's own hidden states.

Li et al.: EAGLE (2401.15077), EAGLE-2's trees that grow where they are likely to be accepted
(2406.16858), EAGLE-3's features of several layers (2503.01840). The heads differ, drafting does
not. After every round the head reads the target's true features of what was committed, and what
it had made up itself is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outrider.drafters.base import Drafter, DraftRequest, DraftSampler
from outrider.drafters.head_cache import HeadAttention, HeadCache, HeadRows
from outrider.errors import OptionError
from outrider.heads.eagle import EagleHead, EagleOutput
from outrider.sampling.draw import Finder
from outrider.trees.drawn import DrawnGrowth
from outrider.trees.growth import Growing, Growth
from outrider.trees.ranks import RankRecord
from outrider.trees.shape import depth_for
from outrider.types import NO_DRAFT, ROOT, DraftTree, TokenIds

_PROMPT_ROWS = 512
_WIDTH = 8

Layer = Callable[[Tensor], Tensor]


@dataclass(slots=True)
class EagleState:
    """One request: its tokens, the features the head has yet to read, and the head's cache."""

    sampler: DraftSampler
    tokens: list[int]
    has_grammar: bool = False
    unread: list[Tensor] = field(default_factory=list)
    drawn: DraftTree = NO_DRAFT
    """The last draft, if it was drawn."""
    cache: HeadCache = field(default_factory=HeadCache)


class _Draft:
    """A request's tree while it grows, and where the head has its nodes."""

    def __init__(self, state: EagleState, growth: Growing, depth: int, row: int) -> None:
        """`row` is that of the state which the first level goes on from, in the pass before."""
        self.state = state
        self.growth = growth
        self._depth = depth
        self._committed = state.cache.length
        self._rows = {ROOT: row}  # of the latest pass, by node
        self._branches = {ROOT: 0}  # by node: itself and its ancestors, as bits

    @property
    def is_growing(self) -> bool:
        """Whether there is another level to come."""
        frontier = self.growth.frontier
        return bool(frontier) and self.growth.depth(frontier[0]) < self._depth

    def add_candidates(
        self, logits: Tensor, ids: Tensor | None, find: Finder | None = None
    ) -> None:
        """Grow by a level, from the logits [F, D] after each node of the frontier."""
        growth, state = self.growth, self.state
        # All of a level are as deep as one another.
        position = len(state.tokens) + growth.depth(growth.frontier[0])
        paths = growth.paths() if state.has_grammar else None
        positions = [position] * len(growth.frontier)
        found = state.sampler.candidates(logits, positions, max(growth.counts), ids, paths, find)
        growth.add(found.tokens, found.chances, found.q)

    def put_into(self, level: _Level) -> None:
        """Add the frontier to a level that the head is to read."""
        growth, cache, frontier = self.growth, self.state.cache, self.growth.frontier
        parents = [growth.parents[node] for node in frontier]
        position = len(self.state.tokens) - 2 + growth.depth(frontier[0])
        stored = cache.length - self._committed
        branches = [self._branches[above] | 1 << stored + i for i, above in enumerate(parents)]
        first = len(level.tokens)
        level.tokens += [growth.tokens[node] for node in frontier]
        level.followed += [self._rows[above] for above in parents]
        level.positions += [position] * len(frontier)
        level.parts.append(HeadRows(cache, len(frontier), self._committed, branches))
        self._rows = {node: first + i for i, node in enumerate(frontier)}
        self._branches |= zip(frontier, branches, strict=True)

    def finish(self, budget: int) -> DraftTree:
        """Return the draft, and leave the cache as it was before."""
        self.state.cache.crop(self._committed)
        return self.growth.tree(budget)


@dataclass(slots=True)
class _Level:
    """What the head reads in one pass: the frontiers of several drafts, one below the other."""

    tokens: list[int] = field(default_factory=list)
    followed: list[int] = field(default_factory=list)
    """Row of the state, in the pass before, that each token goes on from."""
    positions: list[int] = field(default_factory=list)
    parts: list[HeadRows] = field(default_factory=list)


class EagleDrafter(Drafter[EagleState]):
    """Drafts trees with an EAGLE head, for all requests in the same passes of the head.

    Drafts grow where they are likeliest to be accepted (see `Growth`, and `DrawnGrowth` for those
    that are drawn for a rule that rejects). Where a request outgrows the positions the head was
    made for, it rests.
    """

    name = "eagle"
    default_max_draft = 63

    def __init__(
        self,
        head: EagleHead,
        *,
        embeddings: Layer,
        output_layer: Layer,
        width: int = _WIDTH,
        find: Finder | None = None,
    ) -> None:
        """`embeddings` and `output_layer`, the target's own, serve a head that has none; of each
        level the `width` likeliest nodes are expanded, by as many children each. `find` is a faster
        way to the likeliest tokens than torch's.
        """
        layers = head.config.feature_layers
        if layers is None:
            raise OptionError("the EAGLE head does not say which layers it reads: resolve them")
        if width < 1:
            raise OptionError(f"width is {width}, must be at least 1")
        self.feature_layers = layers
        self._head = head
        self._embeddings = embeddings
        self._output_layer = output_layer
        self._width = width
        self._find = find
        self.drafts_trees = width > 1
        self._ranks = RankRecord(width)
        self._ids = head.target_ids
        self._most = head.config.max_position_embeddings
        self._dtype = head.dtype  # the target's may be another

    def steps(self, budget: int) -> int:
        return depth_for(budget) if self.drafts_trees else budget

    def begin(self, request: DraftRequest) -> EagleState:
        has_grammar = request.grammar is not None
        return EagleState(request.sampler, list(request.prompt_ids), has_grammar)

    @torch.inference_mode()
    def propose(self, states: Sequence[EagleState], budgets: Sequence[int]) -> list[DraftTree]:
        depths = [
            min(self.steps(budget), self._most - len(state.tokens)) if state.unread else 0
            for state, budget in zip(states, budgets, strict=True)
        ]
        asked = [i for i, depth in enumerate(depths) if depth > 0]
        trees = [NO_DRAFT] * len(states)
        if not asked:
            return trees
        output = self._read([states[i] for i in asked])
        drafts = [
            _Draft(states[i], self._growth(states[i], budgets[i], depths[i]), depths[i], row)
            for row, i in enumerate(asked)
        ]
        self._add_level(drafts, output.output)
        while growing := [draft for draft in drafts if draft.is_growing]:
            output = self._step(growing, output.state)
            self._add_level(growing, output.output)
        for i, draft in zip(asked, drafts, strict=True):
            trees[i] = draft.finish(budgets[i])
            states[i].drawn = trees[i] if trees[i].q is not None else NO_DRAFT
        return trees

    def observe(
        self,
        states: Sequence[EagleState],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor],
    ) -> None:
        for state, tokens, read in zip(states, committed, features, strict=True):
            self._ranks.learn(state.drawn, tokens)
            state.drawn = NO_DRAFT
            state.tokens.extend(tokens)
            state.unread.append(read)

    def _growth(self, state: EagleState, budget: int, depth: int) -> Growing:
        if state.sampler.has_laws:
            return DrawnGrowth(self._ranks, budget, depth)
        return Growth(min(self._width, budget), budget, depth)

    def _read(self, states: Sequence[EagleState]) -> EagleOutput:
        """Let the head read all true features; returns what it gives [B, H] after the last."""
        spans: list[_Span] = []
        for state in states:
            features = state.unread[0] if len(state.unread) == 1 else torch.cat(state.unread)
            state.unread = []
            span = _Span(state, len(state.tokens) - 1 - len(features), features)
            while len(span.features) > _PROMPT_ROWS:
                self._run_spans([span.first_rows(_PROMPT_ROWS)])
                span = span.without(_PROMPT_ROWS)
            spans.append(span)
        output = self._run_spans(spans)
        last = torch.tensor([len(span.features) for span in spans]).cumsum(0) - 1
        last = last.to(output.output.device)
        return EagleOutput(output.state[last], output.output[last])

    def _run_spans(self, spans: Sequence[_Span]) -> EagleOutput:
        features = torch.cat([span.features for span in spans])
        tokens = [token for span in spans for token in span.tokens()]
        positions = [place for span in spans for place in span.positions()]
        rows = [HeadRows(span.state.cache, len(span.features)) for span in spans]
        return self._run(tokens, self._head.fuse(features.to(self._dtype)), positions, rows)

    def _step(self, drafts: Sequence[_Draft], states: Tensor) -> EagleOutput:
        """Let the head read the frontiers of all drafts, going on from the states it gave last."""
        level = _Level()
        for draft in drafts:
            draft.put_into(level)
        followed = torch.tensor(level.followed, device=states.device)
        hidden = states.index_select(0, followed)
        return self._run(level.tokens, hidden, level.positions, level.parts)

    def _run(
        self, tokens: list[int], hidden: Tensor, positions: list[int], rows: Sequence[HeadRows]
    ) -> EagleOutput:
        device = hidden.device
        attention = HeadAttention(rows)
        embeddings = self._head.embed(torch.tensor(tokens, device=device), self._embeddings)
        places = torch.tensor(positions, device=device)
        output: EagleOutput = self._head(embeddings.to(self._dtype), hidden, places, attention)
        attention.commit()
        return output

    def _add_level(self, drafts: Sequence[_Draft], outputs: Tensor) -> None:
        logits = self._head.logits(outputs, self._output_layer)
        first = 0
        for draft in drafts:
            last = first + len(draft.growth.frontier)
            draft.add_candidates(logits[first:last], self._ids, self._find)
            first = last


@dataclass(frozen=True, slots=True)
class _Span:
    """Features of neighbouring tokens of a request, the first of them at position `first`."""

    state: EagleState
    first: int
    features: Tensor

    def tokens(self) -> list[int]:
        """Return the token that follows each feature's own."""
        return self.state.tokens[self.first + 1 : self.first + 1 + len(self.features)]

    def positions(self) -> range:
        """Return the positions of the pairs of feature and token."""
        return range(self.first, self.first + len(self.features))

    def first_rows(self, count: int) -> _Span:
        """Return the span of the first so many rows."""
        return _Span(self.state, self.first, self.features[:count])

    def without(self, count: int) -> _Span:
        """Return the span without its first so many rows."""
        return _Span(self.state, self.first + count, self.features[count:])
