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
from outrider.trees.growth import Growing, Growth, ShapedGrowth
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
    unread: list[Tensor] = field(default_factory=list)
    drawn: DraftTree = NO_DRAFT
    """The last draft, if it was drawn."""
    cache: HeadCache = field(default_factory=HeadCache)


class _Draft:
    """A request's tree while it grows, and what the head has made of its nodes."""

    def __init__(self, state: EagleState, growth: Growing, depth: int, hidden: Tensor) -> None:
        """`hidden` [H] is the state that the first level goes on from."""
        self.state = state
        self.growth = growth
        self._depth = depth
        self._committed = state.cache.length
        self._hidden = {ROOT: hidden}
        self._rows: dict[int, int] = {}  # of the cache, by node

    @property
    def is_growing(self) -> bool:
        """Whether there is another level to come."""
        frontier = self.growth.frontier
        return bool(frontier) and self.growth.depth(frontier[0]) < self._depth

    def add_candidates(self, logits: Tensor, ids: Tensor | None) -> None:
        """Grow by a level, from the logits [F, D] after each node of the frontier."""
        growth, state = self.growth, self.state
        positions = [len(state.tokens) + growth.depth(node) for node in growth.frontier]
        found = state.sampler.candidates(logits, positions, max(growth.counts), ids, growth.paths())
        growth.add(found.tokens, found.chances, found.q)

    def pairs(self) -> tuple[list[int], list[Tensor], list[int]]:
        """Return the tokens of the frontier, the states they follow, and their positions."""
        growth, root = self.growth, len(self.state.tokens) - 2
        frontier = growth.frontier
        return (
            [growth.tokens[node] for node in frontier],
            [self._hidden[growth.parents[node]] for node in frontier],
            [root + growth.depth(node) for node in frontier],
        )

    def rows(self) -> HeadRows:
        """Return the rows of the frontier, which see the committed ones and their ancestors."""
        frontier, cache = self.growth.frontier, self.state.cache
        self._rows |= {node: cache.length + place for place, node in enumerate(frontier)}
        seen = torch.zeros(len(frontier), cache.length + len(frontier), dtype=torch.bool)
        seen[:, : self._committed] = True
        for place, node in enumerate(frontier):
            seen[place, [self._rows[above] for above in self.growth.path(node)]] = True
        return HeadRows(cache, len(frontier), seen)

    def keep(self, hidden: Tensor) -> None:
        """Take note of the states [F, H] that the head gives after the frontier."""
        self._hidden |= dict(zip(self.growth.frontier, hidden, strict=True))

    def finish(self, budget: int) -> DraftTree:
        """Return the draft, and leave the cache as it was before."""
        self.state.cache.crop(self._committed)
        return self.growth.tree(budget)


class EagleDrafter(Drafter[EagleState]):
    """Drafts trees with an EAGLE head, for all requests in the same passes of the head.

    A draft that is worked out (greedy, or under `match`) grows where it is likeliest to be
    accepted; one that is drawn for a rule that rejects has a shape settled beforehand. Where a
    request outgrows the positions the head was made for, it rests.
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
    ) -> None:
        """`embeddings` and `output_layer`, the target's own, serve a head that has none; of each
        level the `width` likeliest nodes are expanded, by as many children each.
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
        self.drafts_trees = width > 1
        self._ranks = RankRecord(width)
        self._ids = head.target_ids
        self._most = head.config.max_position_embeddings
        self._dtype = next(head.parameters()).dtype  # the target's may be another

    def steps(self, budget: int) -> int:
        return depth_for(budget) if self.drafts_trees else budget

    def begin(self, request: DraftRequest) -> EagleState:
        return EagleState(request.sampler, list(request.prompt_ids))

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
        read = self._read([states[i] for i in asked])
        drafts = [
            _Draft(states[i], self._growth(states[i], budgets[i], depths[i]), depths[i], hidden)
            for i, hidden in zip(asked, read.state, strict=True)
        ]
        self._add_level(drafts, read.output)
        while growing := [draft for draft in drafts if draft.is_growing]:
            self._add_level(growing, self._step(growing))
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
            return ShapedGrowth(self._ranks.shape(budget, depth))
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

    def _step(self, drafts: Sequence[_Draft]) -> Tensor:
        """Let the head read the frontiers of all drafts; returns its outputs [F, H] after them."""
        tokens: list[int] = []
        hidden: list[Tensor] = []
        positions: list[int] = []
        for draft in drafts:
            drafted, followed, places = draft.pairs()
            tokens += drafted
            hidden += followed
            positions += places
        rows = [draft.rows() for draft in drafts]
        output = self._run(tokens, torch.stack(hidden), positions, rows)
        sizes = [part.count for part in rows]
        for draft, states in zip(drafts, torch.split(output.state, sizes), strict=True):
            draft.keep(states)
        return output.output

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
        sizes = [len(draft.growth.frontier) for draft in drafts]
        for draft, rows in zip(drafts, torch.split(logits, sizes), strict=True):
            draft.add_candidates(rows, self._ids)


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
