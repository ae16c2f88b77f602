"""What a drafter could add to a request's next pass, and what is taken of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.engine.gains import Level
from outrider.engine.seat import Member, Seat
from outrider.trees.layout import prune
from outrider.types import NO_DRAFT, DraftTree


@dataclass(frozen=True, slots=True)
class Offer:
    """Nodes that could be scored, the likeliest first."""

    seat: Seat
    chances: list[float]
    """The probability that each is accepted, its ancestors with it; of a draft that is there they
    fall."""
    tree: DraftTree | None = None
    """The draft, of which a part may be taken; None where drafting comes after the choice."""
    order: list[int] | None = None
    """The nodes of the tree in the order of `chances`, if that is not their own."""
    levels: list[int] | None = None
    """Of a draft not yet made, the level that each node stands on, from 1."""
    horizon: float = 1.0
    """Rounds that share the cost of reading what the drafter has not read yet."""
    lead: int = 0
    """How many nodes at its beginning are sure, and take the drafter no step."""
    own: int | None = None
    """How many nodes are the drafter's; those behind them are forced. None: all."""

    @classmethod
    def to_come(cls, seat: Seat, levels: Sequence[Level], horizon: float, lead: int = 0) -> Offer:
        """Offer a draft that is not made yet, by what its levels are expected to bring.

        Before the first level come `lead` tokens that are sure.
        """
        if not levels:
            lead = 0
        chances = [1.0] * lead
        places = [1] * lead
        for place, level in enumerate(levels, 1):
            count = max(1, round(level.nodes))
            chances += [level.tokens / count] * count
            places += [place] * count
        return cls(seat, chances, levels=places, horizon=horizon, lead=lead)

    def nodes(self) -> Iterator[tuple[int, float]]:
        """Yield the nodes of the draft that is there with their chances, the likeliest first."""
        order = range(len(self.chances)) if self.order is None else self.order
        yield from zip(order, self.chances, strict=True)

    def ends_level(self, count: int) -> bool:
        """Whether the first `count` nodes are whole levels, which is how drafts are asked for."""
        levels = self.levels
        return levels is None or count == len(levels) or levels[count] > levels[count - 1]

    def budget(self, count: int) -> int:
        """Return how many tokens to ask for, so that the first `count` nodes are among them."""
        if not self.levels:
            return count
        member = self.seat.member
        return min(member.longest, self.lead + member.budget(self.levels[count - 1]))

    @property
    def is_whole(self) -> bool:
        """Whether the draft is taken as it is or not at all: it was drawn, not worked out."""
        return self.tree is not None and self.tree.q is not None

    @classmethod
    def of_tree(cls, seat: Seat, tree: DraftTree) -> Offer:
        """Offer a draft that is there: any part of it, or all of it if it was drawn."""
        chances = seat.acceptance.tree_survival(tree)
        if tree.is_chain:
            return cls(seat, chances, tree)
        # Parents are at least as likely as their children, and come first among equals.
        order = sorted(range(len(tree)), key=lambda node: -chances[node])
        return cls(seat, [chances[node] for node in order], tree, order)

    def draft_seconds(
        self,
        count: int,
        pass_seconds: float,
        *,
        requests: int = 1,
        all_at_once: bool = False,
    ) -> float:
        """Return what drafting so many tokens takes, for so many requests that all do as this."""
        if self.tree is not None or not count:
            return 0.0
        unread = requests * self._unread(all_at_once)
        return self.seat.member.costs.seconds(self.steps(count), unread, pass_seconds, requests)

    def steps(self, count: int) -> int:
        """Return how many steps the drafter takes to so many nodes."""
        return self.levels[count - 1] if self.levels else self.seat.member.drafter.steps(count)

    def _unread(self, all_at_once: bool) -> float:
        """Return the unread tokens that a draft bears: all, or its part of what rounds share."""
        return self.seat.unread if all_at_once else self.seat.unread / self.horizon

    def first(self, count: int) -> DraftTree:
        """Return the part of the draft that holds the `count` likeliest nodes."""
        tree = self.tree
        if tree is None or not count:
            return NO_DRAFT
        if count == len(tree):
            return tree
        if self.order is None:
            chances = None if tree.chances is None else tree.chances[:count]
            return DraftTree(tree.tokens[:count], tree.parents[:count], None, chances)
        keep = [False] * len(tree)
        for node in self.order[:count]:
            keep[node] = True
        return prune(tree, keep)


@dataclass(frozen=True, slots=True)
class Pick:
    """How much of which offer a request takes."""

    offer: Offer
    count: int

    @property
    def tokens(self) -> float:
        """Drafted tokens that are expected to be accepted."""
        return sum(self.offer.chances[: self.count])


def drafting_seconds(
    parts: Sequence[tuple[Offer, int]], pass_seconds: float, *, all_at_once: bool = False
) -> float:
    """Return what drafts not yet made take, so many nodes of each: drafters go one by one.

    Each drafts for all its requests at a time.
    """
    by_member: dict[Member, list[tuple[Offer, int]]] = {}
    for offer, count in parts:
        if offer.tree is None and count:
            by_member.setdefault(offer.seat.member, []).append((offer, count))
    return sum(
        member.costs.seconds(
            max(offer.steps(count) for offer, count in own),
            sum(offer._unread(all_at_once) for offer, _ in own),
            pass_seconds,
            len(own),
        )
        for member, own in by_member.items()
    )
