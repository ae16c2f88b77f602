"""Drafts copied from wherever the latest tokens occurred before, as SuffixDecoding does.

Oliaro et al. 2024 (2411.04975): of all places where a suffix of the text occurred before, follow
the most frequent continuation, and let the tokens expected to be accepted decide. Here suffix
automata take the place of the suffix trees, only the longest suffix is followed, and the chance
that a copy goes on is learnt in each request rather than taken from the counts alone. Whether the
chances are worth a pass over more rows is for the engine to say: it knows what that costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

from outrider.drafters.automaton import END, START, SuffixAutomaton
from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.store import OutputStore
from outrider.drafters.survival import HORIZON, Survival
from outrider.errors import OptionError
from outrider.types import NO_DRAFT, ROOT, DraftTree, TokenIds

if TYPE_CHECKING:
    from torch import Tensor


Step: TypeAlias = tuple[float, int, int, int, int, int]
"""A token that may be copied: less its chance, its rank among its siblings, the node it hangs off,
the token itself, the place after it, and the length of the match there. The best is the least."""


@dataclass(slots=True)
class Match:
    """The longest suffix of a request's text that occurs, or occurred before, in some text."""

    text: SuffixAutomaton
    place: int = START
    length: int = 0
    survival: Survival = field(default_factory=Survival)

    def learn(self, token: int) -> None:
        """Take note of whether a copy from here would have had the request's next token right."""
        if self.length and not self.text.is_branching(self.place):
            right = self.text.favourite(self.place)[0] == token
            self.survival.learn(self.length, right=right)

    def settle(self) -> None:
        """Find the place again after the text may have grown."""
        self.place = self.text.settle(self.place, self.length)

    def advance(self, token: int) -> None:
        """Match the request's next token in a text of others."""
        self.settle()
        self.learn(token)
        self.place, self.length = self.text.advance(self.place, self.length, token)

    def append(self, token: int) -> None:
        """Extend the request's own text by its next token."""
        self.learn(token)
        self.text.append(token)
        self.place, self.length = self.text.repeated_suffix()


@dataclass(slots=True)
class SuffixState:
    """One request: where its latest tokens occurred in its own text and in past outputs."""

    own: Match
    past: tuple[Match, ...] = ()
    output: list[int] = field(default_factory=list)

    def observe(self, token: int) -> None:
        """Take in the request's next token."""
        self.own.append(token)
        for match in self.past:
            match.advance(token)

    def follow(self, generations: tuple[SuffixAutomaton, ...]) -> None:
        """Let go of generations the store has dropped, and take up new ones."""
        known = {id(match.text): match for match in self.past}
        self.past = tuple(known.get(id(text)) or Match(text) for text in generations)


class SuffixDrafter(Drafter[SuffixState]):
    """Copies the likeliest continuations of the longest suffix that occurred before.

    Where the text went on in several ways the draft branches, unless `branches` is False; then it
    follows the favourites alone.
    `length` is the most tokens a draft may have; it ends earlier where a token's chance of being
    accepted falls below `min_probability`. `max_shared_tokens` bounds the store of past outputs
    that all requests may copy from (0: no store).
    """

    name = "suffix"
    is_lookup = True
    default_max_draft = HORIZON

    def __init__(
        self,
        *,
        length: int = HORIZON,
        min_probability: float = 0.01,
        max_shared_tokens: int = 0,
        branches: bool = True,
    ) -> None:
        if length < 1:
            raise OptionError(f"length is {length}, must be at least 1")
        if not 0 <= min_probability <= 1:
            raise OptionError(f"min_probability is {min_probability}, must be 0 to 1")
        if max_shared_tokens < 0 or max_shared_tokens == 1:
            raise OptionError(f"max_shared_tokens is {max_shared_tokens}, must be 0 or at least 2")
        self._length = length
        self._branches = branches
        self._min_probability = min_probability
        self._store = OutputStore(max_shared_tokens) if max_shared_tokens else None

    def begin(self, request: DraftRequest) -> SuffixState:
        """Index the prompt, and the input before it."""
        text = SuffixAutomaton((*request.context_ids, *request.prompt_ids))
        return SuffixState(Match(text, *text.repeated_suffix()))

    def propose(self, states: Sequence[SuffixState], budgets: Sequence[int]) -> list[DraftTree]:
        """Copy for each request the continuation with the most tokens expected to be accepted."""
        return [
            self._draft(state, budget) if budget > 0 else NO_DRAFT
            for state, budget in zip(states, budgets, strict=True)
        ]

    def observe(
        self,
        states: Sequence[SuffixState],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        """Take in the committed tokens."""
        for state, tokens in zip(states, committed, strict=True):
            if self._store is not None:
                state.follow(self._store.generations)
                state.output.extend(tokens)
            for token in tokens:
                state.observe(token)

    def end(self, state: SuffixState) -> None:
        """Hand the output over to the shared store, if there is one."""
        if self._store is not None:
            self._store.add(state.output)

    def _draft(self, state: SuffixState, budget: int) -> DraftTree:
        longest = min(budget, self._length)
        best = self._copy(state.own, longest)
        for match in state.past:
            match.settle()
            other = self._copy(match, longest)
            if sum(other.chances or ()) > sum(best.chances or ()):
                best = other
        return best

    def _copy(self, match: Match, longest: int) -> DraftTree:
        """Copy the likeliest continuations, best first: the favourites, where no other comes near.

        Each has its chance of being accepted.
        """
        tokens: list[int] = []
        parents: list[int] = []
        chances: list[float] = []
        waiting: list[Step] = []
        place, matched, node, reached = match.place, match.length, ROOT, 1.0
        while len(tokens) < longest:
            for step in self._steps(match, place, matched, node, reached):
                heappush(waiting, step)
            if not waiting or -waiting[0][0] < self._min_probability:
                break
            chance, _, parent, token, place, matched = heappop(waiting)
            node, reached = len(tokens), -chance
            tokens.append(token)
            parents.append(parent)
            chances.append(reached)
        if not tokens:
            return NO_DRAFT
        return DraftTree(tuple(tokens), tuple(parents), None, tuple(chances))

    def _steps(
        self, match: Match, place: int, matched: int, node: int, reached: float
    ) -> list[Step]:
        """Return what may follow a node, which leaves the match so long, the favourite first."""
        text = match.text
        place, matched = text.continued(place, matched)
        token, following = text.favourite(place)
        if not matched or token == END:
            return []
        reached *= match.survival.rate(matched)
        steps = [(-reached * text.share(place), 0, node, token, following, matched + 1)]
        if self._branches and text.is_branching(place):
            for rank, (token, following, share) in enumerate(text.others(place), 1):
                if token != END:
                    steps.append((-reached * share, rank, node, token, following, matched + 1))
        return steps
