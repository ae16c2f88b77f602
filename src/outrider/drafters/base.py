"""The door every drafter stands behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from outrider.types import Candidates, DraftTree, EncoderInput, TokenIds

if TYPE_CHECKING:
    from torch import Tensor

    from outrider.sampling.draw import Finder


class DraftSampler(Protocol):
    """How a drafter that samples chooses a token: the request's temperature, and its noise.

    Under the `match` rule the noise is the target's own for that position, which makes matches
    likely; under the rules that reject it is an independent stream.
    """

    @property
    def is_greedy(self) -> bool:
        """Whether drafts are the drafter's argmax: deterministic, no `q`."""
        ...

    @property
    def has_laws(self) -> bool:
        """Whether drafts come with `q`, so that a tree's shape may not depend on what was drawn."""
        ...

    def draw(
        self, logits: Tensor, position: int, path: TokenIds | None = None
    ) -> tuple[int, Tensor | None]:
        """Choose the token at an absolute position from draft logits [V]; return it and q [V].

        q is None when the draft needs none: greedy drafts, and every draft under `match`. `path`
        are the tokens drafted before it, by which the request's grammar is known to stand there.
        """
        ...

    def candidates(
        self,
        logits: Tensor,
        positions: Sequence[int],
        count: int,
        ids: Tensor | None = None,
        paths: Sequence[TokenIds] | None = None,
        find: Finder | None = None,
    ) -> Candidates:
        """Choose up to `count` different tokens for each row of draft logits [R, D].

        `positions` are the absolute ones the tokens would stand at. `ids` [D] are the target's
        ids that the columns stand for, where they are not 0 to V - 1. `paths[r]` are the tokens
        drafted before row r: what the request's grammar refuses there is not chosen. `find` is a
        faster way to the likeliest than torch's, where a drafter has one.
        """
        ...


class DraftGrammar(Protocol):
    """What a request's grammar says of the text to come. Looking ahead moves nothing.

    A path is a draft after all that was committed.
    """

    def allowed(self, path: TokenIds = ()) -> Tensor:
        """Return the ids [n] allowed after a path, in order: none after one that is refused."""
        ...

    def forced(self, limit: int, path: TokenIds = ()) -> list[int]:
        """Return at most `limit` tokens that come after a path whatever the target says."""
        ...

    def reachable(self, tree: DraftTree) -> list[bool]:
        """Return for each node of a draft whether the grammar allows the path that leads to it."""
        ...


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """What a drafter learns of a request when it begins."""

    prompt_ids: tuple[int, ...]
    """All tokens committed so far: the prompt, and the output before a late begin."""
    max_tokens: int
    """Most tokens the request can ever hold, prompt included."""
    sampler: DraftSampler
    prediction_ids: tuple[int, ...] | None = None
    """The output the user expects, for drafters that can use it."""
    sequence: int | None = None
    """The target's own sequence of the request, for drafters that are part of the target."""
    grammar: DraftGrammar | None = None
    """The grammar that the output is held to, led on with what is committed."""
    input: EncoderInput | None = None
    """What the target's encoder reads, if it has one."""
    context_ids: tuple[int, ...] = ()
    """Text before the prompt that the output may take up: that input, in ids of the text's own."""


State = TypeVar("State")


class Drafter(ABC, Generic[State]):
    """Guesses the next tokens of requests; never decides what is emitted.

    All that a drafter knows of a request lives in the state `begin` returns and dies with `end`;
    anything shared between requests is bounded and only ever changes speed. Calls come in the
    order begin, (propose?, observe)*, end: a round may skip `propose`, never `observe`. A drafter
    that is no lookup drafter and reads no features may begin late, with all tokens so far for a
    prompt, or never.
    """

    name: str
    default_max_draft: int = 15
    """Tokens to propose a round at most, where the user sets no limit."""
    is_lookup: bool = False
    """Whether proposing takes microseconds and what is proposed depends on the context alone.

    Such a drafter is asked every round, for as much as it has; whether it pays, and how far, is
    decided on what it proposes.
    """
    drafts_trees: bool = False
    """Whether drafts that it draws may branch, which not every rule can verify.

    Of a draft that was worked out, a rule for chains is given the likeliest path.
    """
    needs_prediction: bool = False
    """Whether a request without a predicted output makes no sense for it."""
    needs_grammar: bool = False
    """Whether it has nothing to say of a request without a grammar, and is left out of it."""
    follows_forced: bool = False
    """Whether its drafts begin with what a grammar forces, which takes it no step.

    Drafts that come with `q` are drawn from their first token.
    """
    reads_text: bool = True
    """Whether it has to read what was committed, sooner or later, which costs it time."""
    feature_layers: tuple[int, ...] = ()
    """The hidden states of the target it reads, by layer, as `Target.score` numbers them.

    Such a drafter begins with the request, for it must see the features of the prompt.
    """

    def steps(self, budget: int) -> int:
        """Return how many passes of its own, one after the other, drafting `budget` tokens takes.

        That is what drafting costs time for; a chain takes one for each token.
        """
        return budget

    @abstractmethod
    def begin(self, request: DraftRequest) -> State:
        """Take on a request; its `prompt_ids` are committed."""

    @abstractmethod
    def propose(self, states: Sequence[State], budgets: Sequence[int]) -> list[DraftTree]:
        """Guess at most `budgets[i]` tokens after all that request i has committed so far.

        Returns one tree a state, in order; an empty tree where there is no good guess.
        """

    @abstractmethod
    def observe(
        self,
        states: Sequence[State],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor],
    ) -> None:
        """Learn the tokens each request has committed since the last call, accepted or not.

        Every round with a proposal is followed by a call; other rounds may come several in one.
        `features[i]` [n, len(feature_layers) * H] are the target's hidden states at the n tokens
        that were read and kept: all that was not read before, up to the one before the last
        committed. A drafter without `feature_layers` gets no features at all: `()`.
        """

    def end(self, state: State) -> None:
        """Let go of a request, finished or abandoned."""


class TextDrafter(Drafter[list[int]]):
    """A drafter that needs to know no more of a request than its text: all committed tokens."""

    def begin(self, request: DraftRequest) -> list[int]:
        return list(request.prompt_ids)

    def observe(
        self,
        states: Sequence[list[int]],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        for state, tokens in zip(states, committed, strict=True):
            state.extend(tokens)
