"""The drafters of an engine, asked so that a fault in one of them never costs a user the text."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from outrider.drafters.grammar import GrammarDrafter
from outrider.engine.proposal import check_proposal
from outrider.engine.seat import Member, Seat
from outrider.engine.state import RequestState
from outrider.errors import DrafterWarning
from outrider.trees.layout import likeliest_path
from outrider.types import NO_DRAFT, DraftTree

_MOST_UNTOLD = 32  # rounds, or rows of hidden states, that are kept until a drafter is told


class Roster:
    """Calls the drafters: begin, propose, observe, end; whoever raises is out for that request."""

    def __init__(
        self,
        members: Sequence[Member],
        vocab_size: int,
        clock: Callable[[], float],
    ) -> None:
        self.members = _with_grammar(members)
        self._vocab_size = vocab_size
        self._clock = clock
        self.layers = tuple(sorted({layer for member in members for layer in member.layers}))
        """The layers whose hidden states any of the drafters reads."""

    def begin(self, state: RequestState) -> None:
        """Seat the drafters at a request; one that the request does not want stays out.

        Those that cost next to nothing, or must not miss anything, begin before they are asked.
        """
        unread = len(state.tokens) + state.input_length
        state.seats = [Seat(member, unread) for member in self.members]
        started = self._clock()
        for seat in state.seats:
            seat.is_out = not state.admits(seat.member)
            if not seat.is_out and (seat.member.is_lookup or seat.member.layers):
                self._begin(state, seat)
        state.stats.draft_s += self._clock() - started

    def _begin(self, state: RequestState, seat: Seat) -> None:
        try:
            seat.draft_state = seat.member.drafter.begin(state.draft_request())
            seat.is_begun = True
        except Exception as error:  # noqa: BLE001  a drafter's fault must not cost the user the text
            self._drop(seat.member, [state], error)

    def ask(
        self,
        member: Member,
        states: Sequence[RequestState],
        budgets: Sequence[int],
        *,
        pass_seconds: float = 0.0,
    ) -> tuple[list[DraftTree], float]:
        """Return a drafter's drafts of at most `budgets[i]` tokens for each request, and the time.

        What a draft model takes is learnt, next to the seconds of a pass of the target.
        """
        trees = [NO_DRAFT] * len(states)
        seats = [state.seat(member) for state in states]
        wanted = [i for i, seat in enumerate(seats) if budgets[i] > 0 and not seat.is_out]
        if not wanted:
            return trees, 0.0
        if behind := [states[i] for i in wanted if seats[i].untold]:
            self._tell(member, behind)
            wanted = [i for i in wanted if not seats[i].is_out]
        started = self._clock()
        for i in wanted:
            if not seats[i].is_begun:
                self._begin(states[i], seats[i])
        asked = [i for i in wanted if seats[i].is_begun and seats[i].can_draft]
        if not asked:
            return trees, self._clock() - started
        proposals = self._propose(member, [states[i] for i in asked], [budgets[i] for i in asked])
        unread = sum(seats[i].unread for i in asked)
        for i, tree in zip(asked, proposals, strict=True):
            trees[i] = self._checked(member, states[i], tree, budgets[i])
            seats[i].has_drafted = True
        seconds = self._clock() - started
        if not member.is_lookup:
            steps = max(
                member.drafter.steps(len(tree) - state.lead(member, len(tree)))
                for state, tree in zip(states, trees, strict=True)
            )
            # The first proposal of all reads its prompt as well, and says little of the next ones;
            # one that takes longer than a pass is slow in itself.
            if member.is_warm or member.costs.is_known or seconds > pass_seconds:
                member.costs.observe(steps, unread, seconds, pass_seconds, len(asked))
            member.is_warm = True
        return trees, seconds

    def _propose(
        self, member: Member, states: Sequence[RequestState], budgets: Sequence[int]
    ) -> list[DraftTree]:
        draft_states = [state.seat(member).draft_state for state in states]
        try:
            proposals = list(member.drafter.propose(draft_states, budgets))
            if len(proposals) != len(states):
                raise ValueError(f"{len(proposals)} trees proposed for {len(states)} requests")
        except Exception as error:  # noqa: BLE001
            self._drop(member, states, error)
            return [NO_DRAFT] * len(states)
        return proposals

    def _checked(
        self, member: Member, state: RequestState, tree: DraftTree, budget: int
    ) -> DraftTree:
        if tree is NO_DRAFT:
            return tree
        try:
            check_proposal(tree, budget, self._vocab_size)
            if member.is_lookup and tree.q is not None:
                raise ValueError("q proposed by a lookup drafter, whose drafts are not drawn")
        except (TypeError, ValueError) as error:
            self._drop(member, [state], error)
            return NO_DRAFT
        if state.rule == "block" and tree.q is None:
            tree = likeliest_path(tree)
        return state.trim(tree)

    def observe(
        self,
        states: Sequence[RequestState],
        committed: Sequence[list[int]],
        features: Sequence[Tensor] = (),
    ) -> None:
        """Take note for every drafter of what its requests have committed.

        One that has proposed in this round is told at once; any other once it is asked, or the
        request ends, as being told takes as long of many rounds as of one. `features` are the
        hidden states of all `layers`, of each request's rows that were kept.
        """
        for i, (state, tokens) in enumerate(zip(states, committed, strict=True)):
            for seat in state.seats:
                if seat.is_begun:
                    seat.untold.append(tokens)
                    if seat.member.layers:
                        seat.untold_features.append(features[i])
                        seat.has_features = True
        for member in self.members:
            due = [state for state in states if _is_due(state.seat(member))]
            if due:
                self._tell(member, due)
        for state, tokens in zip(states, committed, strict=True):
            for seat in state.seats:
                if not seat.is_out:
                    seat.learn(tokens)

    def _tell(self, member: Member, states: Sequence[RequestState]) -> None:
        """Tell a drafter of everything that it has not been told of yet."""
        seats = [state.seat(member) for state in states]
        committed = [[token for tokens in seat.untold for token in tokens] for seat in seats]
        features = [
            self._of_member(torch.cat(parts) if len(parts) > 1 else parts[0], member)
            for seat in seats
            if (parts := seat.untold_features)
        ]
        for seat in seats:
            seat.untold, seat.untold_features = [], []
        try:
            member.drafter.observe([seat.draft_state for seat in seats], committed, features)
        except Exception as error:  # noqa: BLE001
            self._drop(member, states, error)

    def _of_member(self, features: Tensor, member: Member) -> Tensor:
        """Return the part of the features [n, layers * H] that a drafter reads, in its order."""
        if member.layers == self.layers:
            return features
        parts = features.chunk(len(self.layers), dim=-1)
        return torch.cat([parts[self.layers.index(layer)] for layer in member.layers], dim=-1)

    def end(self, state: RequestState) -> None:
        """Let the drafters go of a request."""
        for seat in state.seats:
            if seat.is_begun and seat.untold:
                self._tell(seat.member, [state])
            if seat.is_begun:
                seat.is_begun = False
                seat.is_out = True
                try:
                    seat.member.drafter.end(seat.draft_state)
                except Exception as error:  # noqa: BLE001
                    self._drop(seat.member, [state], error)

    def _drop(self, member: Member, states: Sequence[RequestState], error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        for state in states:
            seat = state.seat(member)
            state.stats.drafter_error = reason
            seat.is_out = True
            seat.trial = None
            if seat.is_begun:
                seat.is_begun = False
                # It has raised once already; a second fault of the same drafter says no more.
                with suppress(Exception):
                    member.drafter.end(seat.draft_state)
        warnings.warn(
            f"drafter {member.name} raised {reason}; decoding goes on without it",
            DrafterWarning,
            stacklevel=2,
        )


def _is_due(seat: Seat) -> bool:
    """Whether a drafter is to be told at once: it has proposed, or there is much to keep."""
    if not seat.is_begun or not seat.untold:
        return False
    rows = len(seat.untold_features[-1]) if seat.untold_features else 0
    return seat.has_drafted or max(rows, len(seat.untold)) >= _MOST_UNTOLD


def _with_grammar(members: Sequence[Member]) -> tuple[Member, ...]:
    """Return drafters, and behind them one of what grammars force: it serves whoever drafts."""
    if not members or any(member.drafter.needs_grammar for member in members):
        return tuple(members)
    drafter = GrammarDrafter()
    # No draft is longer than memory was planned for.
    longest = max(member.longest for member in members)
    return (*members, Member(drafter, drafter.name, longest))
