"""What a drafter could add to a request's next pass, and what is taken of it."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.engine.seat import Seat
from outrider.trees.layout import prune
from outrider.types import NO_DRAFT, DraftTree


@dataclass(frozen=True, slots=True)
class Offer:
    """Nodes that could be scored, the likeliest first."""

    seat: Seat
    chances: list[float]
    """The probability that each is accepted, its ancestors with it; they fall."""
    tree: DraftTree | None = None
    """The draft, of which a part may be taken; None where drafting comes after the choice."""
    order: list[int] | None = None
    """The nodes of the tree in the order of `chances`, if that is not their own."""
    horizon: float = 1.0
    """Rounds that share the cost of reading what the drafter has not read yet."""

    @property
    def is_whole(self) -> bool:
        """Whether the draft is taken as it is or not at all: it was drawn, not worked out."""
        return self.tree is not None and self.tree.q is not None

    @classmethod
    def of_tree(cls, seat: Seat, tree: DraftTree) -> Offer:
        """Offer any part of a draft that is there, and not drawn at random."""
        chances = seat.acceptance.tree_survival(tree)
        if tree.is_chain:
            return cls(seat, chances, tree)
        # Parents are at least as likely as their children, and come first among equals.
        order = sorted(range(len(tree)), key=lambda node: -chances[node])
        return cls(seat, [chances[node] for node in order], tree, order)

    def draft_seconds(self, count: int, pass_seconds: float, *, all_at_once: bool = False) -> float:
        """Return what drafting so many tokens will take."""
        if self.tree is not None or not count:
            return 0.0
        unread = self.seat.unread if all_at_once else self.seat.unread / self.horizon
        return self.seat.member.draft_seconds(count, unread, pass_seconds)

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
