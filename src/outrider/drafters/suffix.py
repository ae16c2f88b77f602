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
from typing import TYPE_CHECKING

from outrider.drafters.automaton import END, NONE, START, SuffixAutomaton
from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.store import OutputStore
from outrider.drafters.survival import HORIZON, Survival
from outrider.errors import OptionError
from outrider.types import NO_DRAFT, DraftTree, TokenIds

if TYPE_CHECKING:
    from torch import Tensor


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
    """Copies the likeliest continuation of the longest suffix that occurred before.

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
    ) -> None:
        if length < 1:
            raise OptionError(f"length is {length}, must be at least 1")
        if not 0 <= min_probability <= 1:
            raise OptionError(f"min_probability is {min_probability}, must be 0 to 1")
        if max_shared_tokens < 0 or max_shared_tokens == 1:
            raise OptionError(f"max_shared_tokens is {max_shared_tokens}, must be 0 or at least 2")
        self._length = length
        self._min_probability = min_probability
        self._store = OutputStore(max_shared_tokens) if max_shared_tokens else None

    def begin(self, request: DraftRequest) -> SuffixState:
        """Index the prompt."""
        text = SuffixAutomaton(request.prompt_ids)
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
        draft, chances = self._copy(state.own, longest)
        for match in state.past:
            match.settle()
            other = self._copy(match, longest)
            if sum(other[1]) > sum(chances):
                draft, chances = other
        return DraftTree.chain(draft, chances=chances) if draft else NO_DRAFT

    def _copy(self, match: Match, longest: int) -> tuple[list[int], list[float]]:
        """Follow the favourites, and return them and their chances of being accepted."""
        text, place, matched = match.text, match.place, match.length
        draft: list[int] = []
        chances: list[float] = []
        reached = 1.0
        while matched and len(draft) < longest:
            token, following = text.favourite(place)
            if token == END:
                break
            if token == NONE:  # the end of the text: go on from where its end occurred before
                place, matched = text.shorten(place)
                continue
            reached *= match.survival.rate(matched) * text.share(place)
            if reached < self._min_probability:
                break
            chances.append(reached)
            draft.append(token)
            place = following
            matched += 1
        return draft, chances
