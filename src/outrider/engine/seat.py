"""A drafter in an engine, and its place at one request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from outrider.drafters.base import Drafter
from outrider.engine.acceptance import Acceptance, AcceptancePool
from outrider.engine.costs import DraftCosts
from outrider.engine.exploration import Exploration
from outrider.engine.trial import Trial
from outrider.types import DraftTree


@dataclass(slots=True, eq=False)
class Member:
    """One drafter of an engine, and what the engine has learnt of it."""

    drafter: Drafter[Any]
    name: str
    longest: int
    """Most tokens that a draft of it may have."""
    costs: DraftCosts = field(default_factory=DraftCosts)
    pool: AcceptancePool = field(default_factory=AcceptancePool)
    exploration: Exploration = field(default_factory=Exploration)

    @property
    def is_lookup(self) -> bool:
        """Whether it is asked every round, because asking costs next to nothing."""
        return self.drafter.is_lookup

    def to_dict(self) -> dict[str, Any]:
        """Return what was learnt as plain values, ready for JSON."""
        return {"cost": self.costs.to_dict(), "acceptance": self.pool.to_dict()}


class Seat:
    """One drafter at one request: its state there, and how its drafts fare."""

    __slots__ = (
        "acceptance",
        "draft_state",
        "has_drafted",
        "is_begun",
        "is_out",
        "member",
        "trial",
        "unread",
    )

    def __init__(self, member: Member, tokens: int) -> None:
        self.member = member
        self.acceptance = Acceptance(member.pool)
        self.draft_state: Any = None
        self.is_begun = False
        """Whether the drafter has taken the request on, and `draft_state` is its state."""
        self.is_out = False
        """Whether it raised, and is not asked again in this request."""
        self.unread = tokens
        """Committed tokens that it has had no occasion to read yet."""
        self.has_drafted = False
        """Whether it proposed in the round under way."""
        self.trial: Trial | None = None

    def try_out(self, tree: DraftTree, *, is_scored: bool) -> None:
        """Check a draft against what is committed next, unless an unscored one still holds."""
        if is_scored or (self.trial is None and len(tree)):
            self.trial = Trial(tree, self.acceptance)

    def learn(self, tokens: list[int]) -> None:
        """Take in what a round committed."""
        if self.trial is not None and not self.trial.follow(tokens):
            self.trial = None
        self.acceptance.age(len(tokens))
        if self.has_drafted:
            self.unread = 0
        elif not self.member.is_lookup:
            self.unread += len(tokens)
        self.has_drafted = False
