"""The values that travel between the parts: drafts, verifications, tokens, chunks.

All are frozen. Nothing here imports torch at run time, so `import outrider` stays light.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

TokenIds: TypeAlias = Sequence[int]
Rule: TypeAlias = Literal["match", "rejection", "block", "traversal"]
Numerics: TypeAlias = Literal["fast", "invariant"]
Source: TypeAlias = Literal["accepted", "recovered", "bonus", "plain"]
FinishReason: TypeAlias = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Recording:
    """Sound for an encoder to hear: samples [n] in float32, at the rate of its model.

    `language` and `task` are as the user gave them; None leaves them to the model.
    """

    samples: Tensor
    language: str | None = None
    task: str | None = None


EncoderInput: TypeAlias = tuple[int, ...] | Recording
"""What an encoder reads: the ids of a text, or sound."""


@dataclass(frozen=True, slots=True)
class LossyRule:
    """A rule that lets pass more than the target says: the text is no longer the target's.

    Its `numbers` are a lenience L; Medusa's epsilon and delta; or FLy's window and entropy.
    """

    kind: Literal["lenience", "typical", "fly"]
    numbers: tuple[float, ...]

    @property
    def base(self) -> Rule:
        """The rule it relaxes: drafts are drawn as for that one."""
        return "rejection" if self.kind == "lenience" else "match"

    def __str__(self) -> str:
        return f"{self.kind}:{','.join(f'{number:g}' for number in self.numbers)}"


AnyRule: TypeAlias = Rule | LossyRule


ROOT = -1
"""Parent index of a node that hangs directly off the committed prefix."""


@dataclass(frozen=True, slots=True, eq=False)
class DraftTree:
    """Draft tokens for one request, as a forest below the last committed token.

    Node `i` carries `tokens[i]` and hangs off node `parents[i]` (`ROOT` for the prefix itself); a
    parent precedes its children and siblings stand in the order they were drafted, with different
    tokens. `q` [N, V] holds, for *sampled* drafts, the law each node was drawn from: its parent's
    draft distribution, before earlier siblings were removed. Without `q` the draft is
    deterministic (a point mass). An empty tree is the way to say "no draft". `chances` are the
    drafter's own estimates that each node is accepted (its ancestors with it), where it has any.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    q: Tensor | None = None
    chances: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.parents)} parents")
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise ValueError(f"node {node} has parent {parent}: parents precede children")
        if self.q is not None and self.q.shape[0] != len(self.tokens):
            raise ValueError(f"q has {self.q.shape[0]} rows for {len(self.tokens)} nodes")
        if self.chances is not None and len(self.chances) != len(self.tokens):
            raise ValueError(f"{len(self.chances)} chances for {len(self.tokens)} nodes")

    @classmethod
    def chain(
        cls,
        tokens: TokenIds,
        q: Tensor | None = None,
        chances: Sequence[float] | None = None,
    ) -> DraftTree:
        """Build the tree in which each token follows the one before."""
        parents = tuple(range(-1, len(tokens) - 1))
        return cls(tuple(tokens), parents, q, None if chances is None else tuple(chances))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """Whether every node hangs off the node just before it."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))


NO_DRAFT = DraftTree()


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The children that each of R nodes may have, `count` of them, in the order they are tried.

    The likeliest come first; with `q`, the order is that in which they were drawn, each from its
    row's law without those before it.
    """

    tokens: list[list[int]]
    chances: list[list[float]]
    """The drafter's estimate that each is accepted, given that its parent is."""
    q: Tensor | None = None
    """[R, V] on the CPU: the law of each row before anything was drawn, if drafts need one."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What a rule made of a tree: the accepted nodes from the root down, and the token after them.

    `next_token` is *recovered* if a draft was rejected there, *bonus* if none was left to reject.
    """

    path: tuple[int, ...]
    next_token: int


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one position under the target's own (raw) distribution."""

    chosen: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token and where it came from."""

    id: int
    source: Source
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one round added to a request: its tokens, and the text now safe to show."""

    text: str
    tokens: tuple[Token, ...]
    finish_reason: FinishReason | None = None
    drafter: str | None = None
    """Whose draft was scored, by its name in the engine; None if there was none."""
    drafted: int = 0
    """How many tokens that draft had."""

    @property
    def accepted(self) -> int:
        """How many of its tokens came from that draft."""
        return sum(token.source == "accepted" for token in self.tokens)
