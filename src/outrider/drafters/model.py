"""A smaller language model as the drafter (Leviathan et al. 2022; Chen et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from outrider.drafters.base import Drafter, DraftGrammar, DraftRequest, DraftSampler
from outrider.errors import OptionError
from outrider.targets.base import Rows, Target
from outrider.trees.drawn import DrawnGrowth
from outrider.trees.growth import Growing, Growth
from outrider.trees.layout import children
from outrider.trees.ranks import RankRecord
from outrider.trees.shape import depth_for
from outrider.types import NO_DRAFT, DraftTree, TokenIds

_MOST_NODES = 32  # of a tree, where the user sets no limit


@dataclass(slots=True)
class ModelState:
    """One request's tokens, and how the draft model's cache stands to them."""

    sequence: int
    sampler: DraftSampler
    tokens: list[int]
    grammar: DraftGrammar | None = None
    read: DraftTree = NO_DRAFT
    """Drafted tokens that the model has read since: a chain that it keeps in its cache, or the
    tree of its last pass."""
    drawn: DraftTree = NO_DRAFT
    """The last draft, if it was drawn."""


class ModelDrafter(Drafter[ModelState]):
    """Drafts with a causal language model that shares the target's token ids.

    With `width` 1 it drafts a chain, a token a pass. Wider, it drafts a tree, a level a pass: no
    node has more than `width` children, and what a level needs of those above is read again.

    The cache is exact after every round: it keeps each drafted token that was accepted, and what
    was accepted but never read is read with the next proposal. Where the request outgrows the
    draft model's context, the drafter rests. A committed id that the draft model does not have is
    read as id 0: the drafts after it may be worse for it, the text never is.

    A draft model that speaks some of the target's token ids alone reads all of them.
    """

    name = "model"
    default_max_draft = 12
    follows_forced = True

    def __init__(
        self,
        model: Target,
        *,
        vocab_size: int,
        shared_ids: int,
        width: int = 1,
        ids: Tensor | None = None,
    ) -> None:
        """Draft with `model` for a target of `vocab_size` ids; ids from `shared_ids` on mean
        nothing to both and are never drafted. `ids` [D] are the target's ids that the columns of
        the model's logits stand for, where it has the target's embeddings and speaks those alone.
        """
        if width < 1:
            raise OptionError(f"width is {width}, must be at least 1")
        self._model = model
        self._vocab_size = vocab_size
        self._ids = ids
        self._known_ids = model.vocab_size if ids is None else vocab_size
        self._shared_ids = min(shared_ids, vocab_size, model.vocab_size)
        self._width = width
        self._ranks = RankRecord(width)
        self.drafts_trees = width > 1
        if self.drafts_trees:
            self.default_max_draft = _MOST_NODES

    def steps(self, budget: int) -> int:
        return depth_for(budget) if self.drafts_trees else budget

    def begin(self, request: DraftRequest) -> ModelState:
        sequence = self._model.open(min(request.max_tokens, self._model.max_positions))
        tokens = list(request.prompt_ids)
        return ModelState(sequence, request.sampler, tokens, request.grammar)

    def propose(self, states: Sequence[ModelState], budgets: Sequence[int]) -> list[DraftTree]:
        runs = [_forced(state, budget) for state, budget in zip(states, budgets, strict=True)]
        depths = [
            max(0, min(self.steps(budget - len(run)), self._room(state) - len(run)))
            for state, budget, run in zip(states, budgets, runs, strict=True)
        ]
        growths = [
            self._growth(state.sampler, budget, depth, run)
            for state, budget, depth, run in zip(states, budgets, depths, runs, strict=True)
        ]
        for step in range(max(depths, default=0)):
            active = [i for i, depth in enumerate(depths) if step < depth and growths[i].frontier]
            if active:
                self._grow([states[i] for i in active], [growths[i] for i in active])
        trees = [growth.tree(budget) for growth, budget in zip(growths, budgets, strict=True)]
        for state, tree in zip(states, trees, strict=True):
            state.drawn = tree if tree.q is not None else NO_DRAFT
        return trees

    def _room(self, state: ModelState) -> int:
        return self._model.max_positions - len(state.tokens)

    def _growth(
        self, sampler: DraftSampler, budget: int, depth: int, run: Sequence[int]
    ) -> Growing:
        if sampler.has_laws and depth > 0:
            return DrawnGrowth(self._ranks, budget, depth)
        growth = Growth(min(self._width, budget), budget, len(run) + depth)
        growth.start(run)
        return growth

    def _grow(self, states: Sequence[ModelState], growths: Sequence[Growing]) -> None:
        """Add a level to each tree, with one pass of the model."""
        rows = [self._rows(*pair) for pair in zip(states, growths, strict=True)]
        scored = self._model.score([part for part, _ in rows])
        for state, growth, (part, wanted), logits in zip(
            states, growths, rows, scored.logits, strict=True
        ):
            if not len(part.tree):
                self._model.commit(state.sequence, ())
            positions = [len(state.tokens) + growth.depth(node) for node in growth.frontier]
            found = state.sampler.candidates(
                self._over_target_ids(logits[wanted]),
                positions,
                max(growth.counts),
                self._ids,
                growth.paths(),
            )
            growth.add(found.tokens, found.chances, found.q)

    def observe(
        self,
        states: Sequence[ModelState],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        for state, tokens in zip(states, committed, strict=True):
            path = _shared_path(state.read, tokens)
            valid = len(state.tokens) + len(path)
            if self.drafts_trees and len(state.read):
                self._model.commit(state.sequence, path)
            state.read = NO_DRAFT
            self._ranks.learn(state.drawn, tokens)
            state.drawn = NO_DRAFT
            state.tokens.extend(tokens)
            # The last token is always read again: its row is where the next draft begins.
            cached = self._model.cached(state.sequence)
            self._model.crop(state.sequence, min(cached, valid, len(state.tokens) - 1))

    def end(self, state: ModelState) -> None:
        self._model.close(state.sequence)

    def _rows(self, state: ModelState, growth: Growing) -> tuple[Rows, list[int]]:
        """Return what the model reads for the next level, and the rows whose logits it needs."""
        cached, committed = self._model.cached(state.sequence), len(state.tokens)
        if not self.drafts_trees:
            state.read = DraftTree.chain(growth.tokens)
            unread = state.tokens[cached:] + growth.tokens[max(0, cached - committed) :]
            return Rows(state.sequence, self._known(unread)), [0]
        state.read, wanted = growth.lineage()
        if len(state.read) and cached == committed:
            # The root has been read already, but has to be in the pass that reads what is below.
            cached -= 1
            self._model.crop(state.sequence, cached)
        return Rows(state.sequence, self._known(state.tokens[cached:]), state.read), wanted

    def _known(self, tokens: TokenIds) -> tuple[int, ...]:
        """Return tokens as ids that the draft model has."""
        return tuple(token if token < self._known_ids else 0 for token in tokens)

    def _over_target_ids(self, logits: Tensor) -> Tensor:
        """Give draft logits [R, D] the target's width [R, V], with no chance for ids not shared.

        Logits of some ids alone stay as they are.
        """
        if self._ids is not None:
            return logits
        missing = self._vocab_size - self._shared_ids
        if missing == 0 and logits.shape[-1] == self._vocab_size:
            return logits
        return functional.pad(logits[:, : self._shared_ids], (0, missing), value=float("-inf"))


def _forced(state: ModelState, budget: int) -> list[int]:
    """Return what comes next for sure, which needs no pass of the model."""
    if state.grammar is None or state.sampler.has_laws:
        return []
    return state.grammar.forced(budget)


def _shared_path(tree: DraftTree, tokens: TokenIds) -> list[int]:
    """Return the nodes of a tree that the tokens lead through, from the root down."""
    below = children(tree)
    path: list[int] = []
    for token in tokens:
        row = path[-1] + 1 if path else 0
        node = next((node for node in below[row] if tree.tokens[node] == token), None)
        if node is None:
            break
        path.append(node)
    return path
