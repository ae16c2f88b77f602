"""Which drafter each request takes in a round, and how far: whatever is worth its time.

Decoding is a renewal process: rounds follow each other, each brings tokens and takes time, and
what counts is the tokens a second in the long run. The policy with the best long-run rate is not
the one whose every round has the best ratio; it maximises tokens - rate * seconds in each round,
at the rate it reaches itself. So time has a price: the rate of late, and never less than that of
plain decoding. A drafted token is scored if the probability that it is accepted is more than the
price of the time it adds.

Nothing here sees a drawn token: lengths of drafts that are sampled are fixed before they are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.engine.asking import Asking
from outrider.engine.choices import Why
from outrider.engine.costs import PassCosts
from outrider.engine.offer import Offer, Pick, drafting_seconds
from outrider.engine.prices import Prices
from outrider.engine.seat import Member, Seat

_MARGIN = 0.01  # of plain decoding's tokens: what a draft must be expected to gain
_MEMORY = 0.97  # a round's weight in the rate, one round later
_PRIOR_ROUNDS = 4.0
# Were every pass to carry a draft, a machine that has slowed down would look like drafts that have
# become dear: a plain pass now and then, for a hundredth of what drafts bring, tells them apart.
_FEWEST_BETWEEN, _BETWEEN = 16, 100


@dataclass(frozen=True, slots=True)
class Decision:
    """What each request takes, and the seconds that the round is expected to take."""

    picks: list[Pick | None]
    seconds: float
    plain_s: float
    """Seconds of the same round without any draft."""
    draft_s: float = 0.0
    """The part of `seconds` that is spent in draft models."""
    why: Why = "pays"
    saved_s: float | None = None
    """Seconds that the picks were expected to save; None if no drafter was asked for any."""
    drafted_by: tuple[Seat | None, ...] = ()
    """Whose draft model or head has drafted for each request, whether or not it is scored."""


class Controller:
    """Decides round by round for one engine."""

    def __init__(
        self, costs: PassCosts, pass_rows: Callable[[Sequence[int]], int], members: Sequence[Member]
    ) -> None:
        self._costs = costs
        self._pass_rows = pass_rows
        self._members = [member for member in members if not member.is_lookup]
        self._round = 0
        self._decode_s = 0.0
        self._tokens = self._plain_rounds = _PRIOR_ROUNDS
        self._upkeep_s = 0.0
        self._since_plain: dict[int, int] = {}
        self._asking: dict[int, Asking] = {}

    @property
    def gain(self) -> float:
        """Tokens a second of late over those of plain decoding, at least 1."""
        return max(1.0, self._tokens / self._plain_rounds)

    def plain_seconds(self, contexts: Sequence[int]) -> float:
        """Return what a pass without drafts takes, of requests with so many tokens of context."""
        return Prices(self._costs, self._pass_rows, contexts, self.gain).plain_s

    def asks(self, size: int) -> bool:
        """Whether drafters are to be asked in a round of so many requests."""
        return self._asking_of(size).is_due

    def admits(self, seat: Seat) -> bool:
        """Whether an offer of a draft model or head could be taken in the next round."""
        return not seat.is_resting or seat.may_try(self._round + 1)

    def rest(self, contexts: Sequence[int]) -> Decision:
        """Return the decision of a round in which no drafter is asked."""
        self._round += 1
        prices = Prices(self._costs, self._pass_rows, contexts, self.gain)
        return self._decision([None] * len(contexts), prices, why="too dear")

    def choose(self, offers: Sequence[Sequence[Offer]], contexts: Sequence[int]) -> Decision:
        """Choose for requests with so many tokens of context among their drafters' offers."""
        self._round += 1
        prices = Prices(self._costs, self._pass_rows, contexts, self.gain)
        if self._is_plain_due(len(offers)):
            return self._decision([None] * len(offers), prices, why="comparison")
        picks, value = prices.best([_paying(each) for each in offers])
        if value <= _MARGIN * len(offers):
            picks, value = [None] * len(offers), 0.0
        is_paying = any(picks)
        self._explore(picks, offers, prices)
        why: Why = "pays" if is_paying else "trial" if any(picks) else _why_not(offers)
        return self._decision(picks, prices, why=why, saved_s=value / prices.price)

    def settle(
        self,
        decision: Decision,
        offers: Sequence[Sequence[Offer]],
        drafts: Sequence[Offer | None],
        contexts: Sequence[int],
    ) -> Decision:
        """Return what is scored once the drafts that were picked are there.

        Their cost is spent, so that each request takes the best part of whatever it has: of its
        draft or of a lookup drafter's. Drafts drawn at random are taken whole.
        """
        prices = Prices(self._costs, self._pass_rows, contexts, self.gain)
        at_hand: list[list[Offer]] = []
        for each, draft in zip(offers, drafts, strict=True):
            there = [offer for offer in (*each, draft) if offer and offer.tree is not None]
            at_hand.append([] if draft is not None and draft.is_whole else there)
        picks, _ = prices.best(at_hand)
        for i, draft in enumerate(drafts):
            if draft is not None and draft.is_whole:
                picks[i] = Pick(draft, len(draft.chances))
        why = decision.why if any(picks) else "too dear"
        return self._decision(picks, prices, decision.draft_s, why=why, saved_s=decision.saved_s)

    def forecast(
        self, picks: list[Pick | None], contexts: Sequence[int], why: Why = "fixed"
    ) -> Decision:
        """Return picks that were made elsewhere, with what they are expected to cost."""
        prices = Prices(self._costs, self._pass_rows, contexts, self.gain)
        return self._decision(picks, prices, why=why)

    def _is_plain_due(self, size: int) -> bool:
        """Whether a plain pass over so many sequences is wanted for comparison."""
        if not self._costs.is_known(size):
            return True
        between = max(_FEWEST_BETWEEN, int(_BETWEEN * (self.gain - 1)))
        return self._since_plain.get(size, 0) >= between

    def _asking_of(self, size: int) -> Asking:
        return self._asking.setdefault(size.bit_length(), Asking())

    def _decision(
        self,
        picks: list[Pick | None],
        prices: Prices,
        spent_s: float = 0.0,
        *,
        why: Why,
        saved_s: float | None = None,
    ) -> Decision:
        """Price the picks; `spent_s` is the time that their drafts have taken already."""
        rows = self._pass_rows([1 + (pick.count if pick else 0) for pick in picks])
        seconds = prices.pass_seconds(rows) + self._upkeep_s
        parts = [(pick.offer, pick.count) for pick in picks if pick is not None]
        draft_s = spent_s + drafting_seconds(parts, prices.plain_s, all_at_once=True)
        return Decision(picks, seconds + draft_s, prices.plain_s, draft_s, why, saved_s)

    def learn(
        self, decision: Decision, tokens: Sequence[int], seconds: float, upkeep_s: float
    ) -> None:
        """Take note of a round: tokens of each request, its time, and that of the lookups in it."""
        self._decode_s += seconds
        num_requests = len(decision.picks)
        is_plain = not any(decision.picks)
        self._since_plain[num_requests] = (
            0 if is_plain else 1 + self._since_plain.get(num_requests, 0)
        )
        if decision.why != "comparison":  # nothing was weighed
            self._asking_of(num_requests).learn(decision.saved_s, upkeep_s, seconds)
        self._enter(decision, tokens, seconds)
        share = decision.seconds / decision.plain_s
        self._tokens = _MEMORY * self._tokens + sum(tokens) / num_requests
        self._plain_rounds = _MEMORY * self._plain_rounds + share
        # An interrupted process is no reason to think that lookups are slow.
        likely = min(upkeep_s, 3 * self._upkeep_s + 1e-4)
        self._upkeep_s += 0.1 * (likely - self._upkeep_s)

    def _enter(self, decision: Decision, tokens: Sequence[int], seconds: float) -> None:
        """Enter what drafts have saved in the ledgers of those whose they are.

        The time they took beyond a plain round is borne by all of them alike.
        """
        seats = [(i, seat) for i, seat in enumerate(decision.drafted_by) if seat is not None]
        if not seats:
            return
        # An interrupted process is no reason to think that drafts are slow.
        likely_s = min(seconds, 2 * decision.seconds + decision.plain_s)
        size = len(decision.picks)
        borne = (likely_s / decision.plain_s - 1) * size / len(seats)
        saved: dict[Member, float] = {}
        for i, seat in seats:
            own = tokens[i] - 1 - borne
            seat.ledger.note(self._round, own)
            saved[seat.member] = saved.get(seat.member, 0.0) + own / size
        for member, rounds in saved.items():
            member.ledger.note(self._round, rounds)

    def _explore(
        self, picks: list[Pick | None], offers: Sequence[Sequence[Offer]], prices: Prices
    ) -> None:
        """Put a trial of a resting drafter in the place of one request's pick, if one is due."""
        used = {pick.offer.seat.member for pick in picks if pick is not None}
        has_tried = False
        for member in self._members:
            if member in used:
                member.exploration.exploit(self._round)
                continue
            for i, each in enumerate(offers):
                offer = next((one for one in each if one.seat.member is member), None)
                if offer is None or not offer.chances or has_tried:
                    continue
                if not offer.seat.may_try(self._round):
                    continue
                cost = prices.trial_seconds(offer, picks[i])
                is_new = not member.costs.is_known
                if is_new or member.exploration.is_due(self._round, cost, self._decode_s):
                    member.exploration.explore(self._round, cost)
                    picks[i] = Pick(offer, prices.trial_length(offer))
                    has_tried = True


def _paying(offers: Sequence[Offer]) -> list[Offer]:
    """Leave out offers of drafters that have cost time of late."""
    return [offer for offer in offers if not offer.seat.is_resting]


def _why_not(offers: Sequence[Sequence[Offer]]) -> Why:
    return (
        "too dear" if any(offer.chances for each in offers for offer in each) else "nothing offered"
    )
