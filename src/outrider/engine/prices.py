"""What drafts would cost in one round, and which of them bring the most for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from outrider.engine.costs import PassCosts
from outrider.engine.exploration import LENGTH
from outrider.engine.offer import Offer, Pick, drafting_seconds

_MOST_TRIED = 32  # sizes of a batch's draft that are compared
_WIDER = 2  # a pass may be so many times as wide as the widest that was timed


class Prices:
    """The seconds of one round's passes and drafts, and what a second is worth in tokens."""

    def __init__(
        self,
        costs: PassCosts,
        pass_rows: Callable[[Sequence[int]], int],
        contexts: Sequence[int],
        gain: float,
    ) -> None:
        self._size = len(contexts)
        self._curve = costs.curve(self._size)
        self._context = sum(contexts) / self._size
        self._pass_rows = pass_rows
        self._known: dict[int, float] = {}
        plain_rows = pass_rows([1] * self._size)
        self._widest = _WIDER * (max(self._curve.widest, plain_rows) + 1)
        self.plain_s = self.pass_seconds(plain_rows)
        self.price = gain * self._size / self.plain_s

    def pass_seconds(self, rows: int) -> float:
        """Return the expected seconds of a pass over so many rows."""
        seconds = self._known.get(rows)
        if seconds is None:
            seconds = self._known[rows] = self._curve.seconds(rows, rows * self._context)
        return seconds

    def best(self, offers: Sequence[Sequence[Offer]]) -> tuple[list[Pick | None], float]:
        """Return the best picks for the requests of a round, and their value."""
        if len(offers) > 1:
            return self.best_of_all(offers)
        pick, value = self.best_alone(offers[0])
        return [pick], value

    def best_alone(self, offers: Sequence[Offer]) -> tuple[Pick | None, float]:
        """Return the best pick for a request if the others did as it does, and its value."""
        best, value = None, 0.0
        for offer in offers:
            count, worth = self._best_count(offer)
            if worth > value:
                best, value = Pick(offer, count), worth
        return best, value

    def _best_count(self, offer: Offer) -> tuple[int, float]:
        size = self._size
        left = sum(offer.chances)
        best, value, gained = 0, 0.0, 0.0
        for count, chance in enumerate(offer.chances, 1):
            # Pass and draft model serve all requests in one go: each bears its part.
            rows = self._pass_rows([1 + count] * size)
            if rows > self._widest:
                break
            gained += chance
            left -= chance
            draft_s = offer.draft_seconds(count, self.plain_s, requests=size)
            cost = self.price * (self.pass_seconds(rows) - self.plain_s + draft_s) / size
            if gained - cost > value and offer.ends_level(count):
                best, value = count, gained - cost
            elif gained + left - cost <= value:
                break
        return best, value

    def best_of_all(self, offers: Sequence[Sequence[Offer]]) -> tuple[list[Pick | None], float]:
        """Return the best picks of several requests, and their value."""
        favourites = [self._favourite(each) for each in offers]
        picks, value = self._best_together(favourites)
        if any(offer is not None and offer.tree is None for offer in favourites):
            # A draft model asked for a few requests may cost more than they gain together.
            lookups = [[offer for offer in each if offer.tree is not None] for each in offers]
            others, worth = self._best_together([self._favourite(each) for each in lookups])
            if worth > value:
                return others, worth
        return picks, value

    def _favourite(self, offers: Sequence[Offer]) -> Offer | None:
        """Return the offer that a request would take nodes of, few or none as they may be."""
        pick, _ = self.best_alone(offers)
        if pick is not None:
            return pick.offer
        lookups = [offer for offer in offers if offer.tree is not None]
        return max(lookups, key=lambda offer: sum(offer.chances), default=None)

    def _best_together(self, offers: Sequence[Offer | None]) -> tuple[list[Pick | None], float]:
        """Return how much of each request's offer to take, and the value of that.

        The cost of a pass is one of all its rows, so no request decides alone.
        """
        best, value = [0] * self._size, 0.0
        for candidates in (_likeliest_first(offers), _level_by_level(offers)):
            for counts, gained in candidates:
                rows = self._pass_rows([1 + count for count in counts])
                if rows > self._widest:
                    break
                seconds = self.pass_seconds(rows) - self.plain_s + self._drafting(offers, counts)
                if gained - self.price * seconds > value:
                    best, value = list(counts), gained - self.price * seconds
        return [
            Pick(offer, count) if offer is not None and count else None
            for offer, count in zip(offers, best, strict=True)
        ], value

    def _drafting(self, offers: Sequence[Offer | None], counts: Sequence[int]) -> float:
        """Return the seconds of all draft models."""
        parts = [(o, count) for o, count in zip(offers, counts, strict=True) if o is not None]
        return drafting_seconds(parts, self.plain_s)

    def trial_length(self, offer: Offer) -> int:
        """Return how many tokens are drafted to find out what a drafter is worth."""
        count = min(LENGTH, len(offer.chances))
        # Of a drafter as slow as the target, one token is enough to learn from.
        return count if offer.draft_seconds(count, self.plain_s) < self.plain_s else 1

    def trial_seconds(self, offer: Offer, instead_of: Pick | None) -> float:
        """Return the time that a trial of a drafter costs, what it displaces included."""
        count = self.trial_length(offer)
        rows = self._pass_rows([*[1] * (self._size - 1), 1 + count])
        seconds = self.pass_seconds(rows) - self.plain_s
        seconds += offer.draft_seconds(count, self.plain_s, all_at_once=True)
        return seconds + (instead_of.tokens / self.price if instead_of is not None else 0.0)


def _likeliest_first(offers: Sequence[Offer | None]) -> Iterator[tuple[list[int], float]]:
    """Yield how many nodes of each offer are among the likeliest of all, and what they gain."""
    nodes = sorted(
        (-chance, i)
        for i, offer in enumerate(offers)
        if offer is not None
        for chance in offer.chances
    )
    stride = len(nodes) // _MOST_TRIED + 1
    counts = [0] * len(offers)
    gained = 0.0
    for number, (chance, i) in enumerate(nodes, 1):
        counts[i] += 1
        gained -= chance
        if number % stride == 0 or number == len(nodes):
            yield counts, gained


def _level_by_level(offers: Sequence[Offer | None]) -> Iterator[tuple[list[int], float]]:
    """Yield the same for the first few nodes of every offer: the best of a rectangle of rows."""
    chances = [[] if offer is None else offer.chances for offer in offers]
    gained = 0.0
    for level in range(max(map(len, chances))):
        gained += sum(own[level] for own in chances if level < len(own))
        yield [min(level + 1, len(own)) for own in chances], gained
