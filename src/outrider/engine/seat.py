"""A drafter in an engine, and its place at one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from outrider.drafters.base import Drafter
from outrider.engine.acceptance import Acceptance, AcceptancePool
from outrider.engine.costs import DraftCosts
from outrider.engine.exploration import Exploration
from outrider.engine.gains import Gains, Level
from outrider.engine.ledger import Ledger
from outrider.engine.trial import Trial
from outrider.types import DraftTree

_MAY_LOSE, _MEMBER_RESTS = 8.0, 32  # plain rounds, at all requests together
_MAY_LOSE_HERE, _SEAT_RESTS = 3.0, 4  # and at one: its text may turn soon


@dataclass(slots=True, eq=False)
class Member:
    """One drafter of an engine, and what the engine has learnt of it."""

    drafter: Drafter[Any]
    name: str
    longest: int
    """Most tokens that a draft of it may have."""
    costs: DraftCosts = field(default_factory=DraftCosts)
    pool: AcceptancePool = field(default_factory=AcceptancePool)
    gains: Gains = field(default_factory=Gains)
    exploration: Exploration = field(default_factory=Exploration)
    ledger: Ledger = field(default_factory=lambda: Ledger(_MAY_LOSE, _MEMBER_RESTS))
    is_warm: bool = False
    """Whether it has proposed before, in this engine."""

    @property
    def is_lookup(self) -> bool:
        """Whether it is asked every round, because asking costs next to nothing."""
        return self.drafter.is_lookup

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of the target whose hidden states it reads."""
        return self.drafter.feature_layers

    def budget(self, levels: int) -> int:
        """Return the most tokens that it drafts in so many steps."""
        steps = self.drafter.steps
        return max((n for n in range(1, self.longest + 1) if steps(n) <= levels), default=1)

    def to_dict(self) -> dict[str, Any]:
        """Return what was learnt as plain values, ready for JSON."""
        return {
            "cost": self.costs.to_dict(),
            "acceptance": self.pool.to_dict(),
            "gains": self.gains.to_list(),
        }

    def recall(self, record: Mapping[str, Any]) -> None:
        """Take over what `to_dict` gave; raises KeyError, TypeError or ValueError."""
        self.costs = DraftCosts.from_dict(record["cost"])
        self.pool = AcceptancePool.from_dict(record["acceptance"])
        self.gains = Gains.from_list(record["gains"])


class Seat:
    """One drafter at one request: its state there, and how its drafts fare."""

    __slots__ = (
        "acceptance",
        "draft_state",
        "gains",
        "has_drafted",
        "has_features",
        "is_begun",
        "is_out",
        "ledger",
        "member",
        "trial",
        "unread",
        "untold",
        "untold_features",
    )

    def __init__(self, member: Member, tokens: int) -> None:
        self.member = member
        self.acceptance = Acceptance(member.pool)
        self.gains = Gains(member.gains)
        self.ledger = Ledger(_MAY_LOSE_HERE, _SEAT_RESTS)
        self.draft_state: Any = None
        self.is_begun = False
        """Whether the drafter has taken the request on, and `draft_state` is its state."""
        self.is_out = False
        """Whether it is not asked in this request: it raised, or the request does without it."""
        self.unread = tokens if member.drafter.reads_text else 0
        """Committed tokens that it has had no occasion to read yet."""
        self.has_drafted = False
        """Whether it proposed in the round under way."""
        self.untold: list[list[int]] = []
        """What rounds have committed that the drafter has not been told of, round by round."""
        self.untold_features: list[Tensor] = []
        """And the hidden states [n, F] that came with it, of all layers that any drafter reads."""
        self.has_features = False
        """Whether it was given hidden states of the target."""
        self.trial: Trial | None = None

    @property
    def is_resting(self) -> bool:
        """Whether its drafts have cost time of late, here or everywhere."""
        return self.ledger.is_closed or self.member.ledger.is_closed

    def may_try(self, at_round: int) -> bool:
        """Whether it may be tried, although it may be resting."""
        return self.ledger.may_try(at_round) and self.member.ledger.may_try(at_round)

    @property
    def can_draft(self) -> bool:
        """Whether asking it makes sense: features come with the target's first pass."""
        return not self.is_out and (self.has_features or not self.member.layers)

    def expected(self, levels: int) -> list[Level]:
        """Return what the levels of a draft not yet made may be expected to bring."""
        if self.gains.is_known:
            return self.gains.first(levels)
        return [Level(tokens) for tokens in self.acceptance.survival(levels)]

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
        elif self.member.drafter.reads_text and not self.member.is_lookup:
            self.unread += len(tokens)
        self.has_drafted = False
