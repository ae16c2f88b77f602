"""A round's drafts: of a fixed length, or as long as the cost model finds them worth it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from outrider.engine.choices import Why
from outrider.engine.controller import Controller, Decision
from outrider.engine.gains import Level
from outrider.engine.offer import Offer, Pick
from outrider.engine.roster import Roster
from outrider.engine.seat import Member
from outrider.engine.state import RequestState
from outrider.trees.layout import depths
from outrider.types import NO_DRAFT, DraftTree

_FEW_TOKENS = 32  # a prompt that a draft model may read before the first token is there
_LONG_RUN = 32  # rounds that share the cost of a text that a draft model has yet to read


class Drafting(ABC):
    """Gets the drafts of each round from the drafters."""

    def __init__(self, roster: Roster, controller: Controller) -> None:
        self._roster = roster
        self._controller = controller

    def propose(
        self, states: Sequence[RequestState], contexts: Sequence[int]
    ) -> tuple[list[DraftTree], Decision, float]:
        """Return the tree of each request, why it is that one, and draft models' seconds."""
        if any(state.may_draft for state in states):
            return self._propose(states, contexts)
        decision = self._controller.forecast([None] * len(states), contexts, "switched off")
        return [NO_DRAFT] * len(states), decision, 0.0

    @abstractmethod
    def _propose(
        self, states: Sequence[RequestState], contexts: Sequence[int]
    ) -> tuple[list[DraftTree], Decision, float]:
        """Do the same for requests of which at least one may have drafts."""


class FixedDrafting(Drafting):
    """Drafts as many tokens as it may, with the first drafter that has any to offer."""

    def _propose(
        self, states: Sequence[RequestState], contexts: Sequence[int]
    ) -> tuple[list[DraftTree], Decision, float]:
        trees = [NO_DRAFT] * len(states)
        picks: list[Pick | None] = [None] * len(states)
        plain_s = self._controller.forecast(picks, contexts).plain_s
        modelled_s = 0.0
        for member in self._roster.members:
            budgets = [
                0 if len(tree) else min(member.longest, state.most_drafted)
                for state, tree in zip(states, trees, strict=True)
            ]
            found, seconds = self._roster.ask(member, states, budgets, pass_seconds=plain_s)
            modelled_s += 0.0 if member.is_lookup else seconds
            for i, draft in enumerate(found):
                if len(draft):
                    trees[i] = tree = states[i].complete(draft, budgets[i])
                    seat = states[i].seat(member)
                    seat.try_out(tree, is_scored=True)
                    kept = tree if member.is_lookup else None
                    chances = seat.acceptance.tree_survival(tree)
                    picks[i] = Pick(Offer(seat, chances, kept), len(tree))
        why: Why = "fixed" if any(picks) else "nothing offered"
        return trees, self._controller.forecast(picks, contexts, why), modelled_s


class MeasuredDrafting(Drafting):
    """Drafts with whichever drafter, and as far, as brings the most tokens for the time.

    Lookup drafters are asked first, as they cost next to nothing. The others draft once it is
    settled for which requests, and for how many nodes. Then what is there is weighed once more,
    and only the part of it is scored that is worth its rows. A draft that was drawn at random is
    scored whole: which part of it is scored may not depend on the tokens drawn.

    The first token of a request does not wait for a draft model to read a long prompt. Where
    drafts do not pay, and asking for them takes a while, they are not even asked for every round.
    """

    def _propose(
        self, states: Sequence[RequestState], contexts: Sequence[int]
    ) -> tuple[list[DraftTree], Decision, float]:
        if not self._controller.asks(len(states)):
            return [NO_DRAFT] * len(states), self._controller.rest(contexts), 0.0
        offers: list[list[Offer]] = [[] for _ in states]
        for member in self._roster.members:
            self._offer(member, states, offers)
        decision = self._controller.choose(offers, contexts)
        modelled_s = 0.0
        drafts: list[Offer | None] = [None] * len(states)
        for member in self._roster.members:
            if not member.is_lookup:
                modelled_s += self._draft(member, states, decision, drafts)
        if any(drafts):
            decision = self._controller.settle(decision, offers, drafts, contexts)
            seats = tuple(None if draft is None else draft.seat for draft in drafts)
            decision = replace(decision, drafted_by=seats)
        trees = [
            NO_DRAFT if pick is None else pick.offer.first(pick.count) for pick in decision.picks
        ]
        for draft, tree in zip(drafts, trees, strict=True):
            if draft is not None and _tells_more_than_depth(draft.tree):
                draft.seat.gains.learn(_levels(draft, tree))
        for each, draft, pick in zip(offers, drafts, decision.picks, strict=True):
            for offer in (*each, draft):
                if offer is not None and offer.tree is not None:
                    is_scored = pick is not None and pick.offer is offer
                    offer.seat.try_out(offer.tree, is_scored=is_scored)
        return trees, decision, modelled_s

    def _offer(
        self, member: Member, states: Sequence[RequestState], offers: list[list[Offer]]
    ) -> None:
        budgets = [min(member.longest, state.most_drafted) for state in states]
        if member.is_lookup:
            trees, _ = self._roster.ask(member, states, budgets)
            for state, tree, budget, mine in zip(states, trees, budgets, offers, strict=True):
                if len(tree):
                    draft = state.complete(tree, budget)
                    mine.append(Offer.of_tree(state.seat(member), draft))
            return
        is_known = member.costs.knows_of(len(states))
        for state, budget, mine in zip(states, budgets, offers, strict=True):
            seat = state.seat(member)
            # Nobody knows what the first draft of all costs: it is short, and for one request. Nor
            # what the first for many does: that is short, too.
            is_ready = state.has_begun or seat.unread <= _FEW_TOKENS
            if budget > 0 and seat.can_draft and is_ready and self._controller.admits(seat):
                lead = state.lead(member, budget)
                depth = member.drafter.steps(budget - lead if is_known else 1)
                levels = seat.expected(depth)
                tokens = sum(level.tokens for level in levels)
                horizon = max(1.0, min(_LONG_RUN, state.room / (1 + tokens)))
                mine.append(Offer.to_come(seat, levels, horizon, lead))
                if not member.costs.is_known:
                    break

    def _draft(
        self,
        member: Member,
        states: Sequence[RequestState],
        decision: Decision,
        drafts: list[Offer | None],
    ) -> float:
        """Let a drafter draft for the requests that have picked it; returns the seconds."""
        budgets = [
            min(pick.offer.budget(pick.count), state.most_drafted)
            if pick is not None and pick.offer.seat.member is member
            else 0
            for pick, state in zip(decision.picks, states, strict=True)
        ]
        asked = [len(state.tokens) for state, k in zip(states, budgets, strict=True) if k > 0]
        if not asked:
            return 0.0
        # What it takes is judged next to a pass over as many requests as it drafts for.
        plain_s = self._controller.plain_seconds(asked)
        found, seconds = self._roster.ask(member, states, budgets, pass_seconds=plain_s)
        for i, tree in enumerate(found):
            if budgets[i]:
                seat = states[i].seat(member)
                drafts[i] = replace(
                    Offer.of_tree(seat, states[i].complete(tree, budgets[i])),
                    lead=states[i].lead(member, len(tree)),
                    own=len(tree),
                )
                if not len(tree):  # nothing, where so much was expected: others may have more
                    seat.acceptance.learn(0, False)
                    if seat.gains.is_known:
                        seat.gains.learn([Level(0.0)])
        return seconds


def _tells_more_than_depth(tree: DraftTree | None) -> bool:
    """Whether what levels bring is not a matter of their depth alone, which acceptance knows."""
    return tree is not None and len(tree) > 0 and (tree.chances is not None or not tree.is_chain)


def _levels(draft: Offer, scored: DraftTree) -> list[Level]:
    """Return what the levels of a draft bring: the nodes that were scored, or else the likeliest.

    What was not worth a row in this round is still worth knowing, as it may be in another. What a
    grammar forces before and behind is no merit of the drafter.
    """
    assert draft.tree is not None
    places = depths(draft.tree)[: draft.own]
    found: list[list[float]] = [[] for _ in range(max(places))]
    for node, chance in draft.nodes():
        if node < len(places):
            found[places[node] - 1].append(chance)
    kept = [0] * len(found)
    for depth in depths(scored):
        if depth <= len(kept):
            kept[depth - 1] += 1
    best = [chances[: max(1, count)] for chances, count in zip(found, kept, strict=True)]
    return [Level(min(1.0, sum(chances)), len(chances)) for chances in best[draft.lead :]]
