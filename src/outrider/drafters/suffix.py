"""Drafts copied from wherever the latest tokens occurred before, as SuffixDecoding does.

Oliaro et al. 2024 (2411.04975): of all places where a suffix of the text occurred before, follow
the most frequent continuation, and let the tokens expected to be accepted decide between the
candidates. Here a suffix automaton takes the place of the suffix tree, and the chance that a copy
goes on is learnt in each request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.drafters.automaton import END, START, SuffixAutomaton
from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.store import OutputStore
from outrider.drafters.survival import Survival
from outrider.errors import OptionError
from outrider.types import NO_DRAFT, DraftTree, TokenIds


@dataclass(slots=True)
class _Cursor:
    """The longest suffix of a request's text that occurs in a shared automaton."""

    automaton: SuffixAutomaton
    state: int = START
    matched: int = 0

    def advance(self, token: int) -> None:
        self.state, self.matched = self.automaton.advance(self.state, self.matched, token)


@dataclass(slots=True)
class SuffixState:
    """One request: its text so far, how copies of it have fared, and its places in the store."""

    text: SuffixAutomaton
    survival: Survival = field(default_factory=Survival)
    output: list[int] = field(default_factory=list)
    cursors: list[_Cursor] = field(default_factory=list)


class SuffixDrafter(Drafter[SuffixState]):
    """Copies the likeliest continuation of the longest suffixes that occurred before.

    `length` is the most tokens a draft may have; it ends earlier where a token is less likely
    than `min_probability` to be reached and accepted. Nothing is drafted unless at least
    `min_expected` tokens are expected to be accepted: a pass over many rows costs more than one
    over a single row. `max_shared_tokens` bounds the store of past outputs that all requests may
    copy from (0: none).
    """

    name = "suffix"

    def __init__(
        self,
        *,
        length: int = 15,
        min_expected: float = 1.25,
        min_probability: float = 0.03,
        max_shared_tokens: int = 0,
    ) -> None:
        if length < 1:
            raise OptionError(f"length is {length}, must be at least 1")
        if min_expected < 0:
            raise OptionError(f"min_expected is {min_expected}, must not be negative")
        if not 0 <= min_probability <= 1:
            raise OptionError(f"min_probability is {min_probability}, must be between 0 and 1")
        if max_shared_tokens < 0 or max_shared_tokens == 1:
            raise OptionError(f"max_shared_tokens is {max_shared_tokens}, must be 0 or at least 2")
        self._length = length
        self._min_expected = min_expected
        self._min_probability = min_probability
        self._store = OutputStore(max_shared_tokens) if max_shared_tokens else None

    def begin(self, request: DraftRequest) -> SuffixState:
        """Index the prompt."""
        return SuffixState(SuffixAutomaton(request.prompt_ids))

    def propose(self, states: Sequence[SuffixState], budgets: Sequence[int]) -> list[DraftTree]:
        """Copy for each request the continuation with the most tokens expected to be accepted."""
        return [
            self._best(state, min(budget, self._length))
            for state, budget in zip(states, budgets, strict=True)
        ]

    def observe(self, states: Sequence[SuffixState], committed: Sequence[TokenIds]) -> None:
        """Grow the texts, and see at each token whether a copy would have had it right."""
        for state, tokens in zip(states, committed, strict=True):
            for token in tokens:
                self._observe(state, token)

    def end(self, state: SuffixState) -> None:
        """Hand the output over to the shared store, if there is one."""
        if self._store is not None:
            self._store.add(state.output)
            state.output = []

    def _observe(self, state: SuffixState, token: int) -> None:
        text = state.text
        place, matched = text.repeated_suffix()
        if matched and not text.is_branching(place):
            state.survival.learn(matched, right=text.favourite(place)[0] == token)
        text.append(token)
        if self._store is not None:
            state.output.append(token)
            self._follow_store(state, self._store)
            for cursor in state.cursors:
                cursor.advance(token)

    def _follow_store(self, state: SuffixState, store: OutputStore) -> None:
        """Let go of generations the store has dropped, and take up new ones."""
        known = {id(cursor.automaton): cursor for cursor in state.cursors}
        state.cursors = [known.get(id(each)) or _Cursor(each) for each in store.generations]

    def _best(self, state: SuffixState, limit: int) -> DraftTree:
        text = state.text
        place, matched = text.repeated_suffix()
        best, expected = self._copy(text, place, matched, limit, state.survival, ends=1)
        for cursor in state.cursors:
            place = cursor.automaton.settle(cursor.state, cursor.matched)
            other, promise = self._copy(
                cursor.automaton, place, cursor.matched, limit, state.survival, ends=0
            )
            if promise > expected:
                best, expected = other, promise
        return DraftTree.chain(best) if best and expected >= self._min_expected else NO_DRAFT

    def _copy(
        self,
        text: SuffixAutomaton,
        place: int,
        matched: int,
        limit: int,
        survival: Survival,
        *,
        ends: int,
    ) -> tuple[list[int], float]:
        draft: list[int] = []
        reached = 1.0
        expected = 0.0
        while len(draft) < limit and matched:
            token, target = text.favourite(place)
            if target < 0:
                place, matched = text.shorten(place)
                ends = 1
                continue
            if token == END:
                break
            reached *= survival.rate(matched)
            if text.is_branching(place):
                count = text.count(target)
                reached *= count / max(count, text.count(place) - ends)
            if reached < self._min_probability:
                break
            expected += reached
            draft.append(token)
            place = target
            matched += 1
            ends = 0
        return draft, expected


CANDIDATES = 0
