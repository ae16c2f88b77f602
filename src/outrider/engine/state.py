"""All that the engine knows of a request while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from outrider.drafters.base import DraftRequest
from outrider.engine.emittable import completed, trimmed
from outrider.engine.prefixes import Prefix
from outrider.engine.request import (
    Request,
    build_pipeline,
    build_stopper,
    check_prompt,
    input_length,
    most_tokens,
)
from outrider.engine.scoring import MOST_SCORED_ROWS
from outrider.engine.seat import Member, Seat
from outrider.engine.stats import Stats
from outrider.sampling.logprobs import token_logprobs
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.rows import SampledRows
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.targets.base import Rows, Target
from outrider.types import (
    AnyRule,
    Chunk,
    DraftTree,
    FinishReason,
    LossyRule,
    Source,
    Token,
    Verification,
)


class RequestState:
    """A running request: its tokens, its place in the target's cache, its sampler and stopper."""

    def __init__(
        self,
        request: Request,
        target: Target,
        *,
        rule: AnyRule = "match",
        prefix: Prefix | None = None,
    ) -> None:
        """`rule` serves a request that names none, `prefix` one that has no session.

        Without either a sequence is opened. If anything is raised, nothing is held.
        """
        check_prompt(request.prompt_ids, target)
        self.request = request
        self.rule: AnyRule = request.rule or rule
        self.tokens = list(request.prompt_ids)
        is_lossy = isinstance(self.rule, LossyRule) and request.speculate
        lossy = str(self.rule) if is_lossy else None
        self.input_length = input_length(request, target)
        read = len(request.prompt_ids) + self.input_length
        self.stats = Stats(prompt_tokens=read, lossy=lossy)
        self.finish_reason: FinishReason | None = None
        self.seats: list[Seat] = []
        """One for each drafter of the engine."""
        self._max_tokens = most_tokens(request, target)
        self.noise = KeyedNoise(request.seed)
        self._pipeline = build_pipeline(request, target)
        self._stopper = build_stopper(request, target)
        self._target = target
        self._features: list[Tensor] = []  # of the pieces of the prompt that were read
        self._input = request.input  # until the encoder has read it
        self._prefix = self._acquire(prefix)
        self.sequence = self._prefix.sequence
        self.stats.reused_tokens = target.cached(self.sequence)

    def _acquire(self, prefix: Prefix | None) -> Prefix:
        request = self.request
        shareable = request.prompt_ids
        if request.scores is not None:  # of what is cached there are no logits any more
            request.scores.begin()
            shareable = ()
        if request.session is not None:
            return request.session.acquire(self._target, shareable, self._max_tokens)
        if prefix is None:
            return Prefix(self._target, self._max_tokens)
        prefix.lend(shareable)
        return prefix

    def release(self) -> Prefix | None:
        """Give the cache back to its session, or return it: it is the caller's then."""
        # The last token of the prompt is the first that is decoded from.
        self._prefix.take_back(self.tokens, len(self.request.prompt_ids) - 1)
        if self.request.session is None:
            return self._prefix
        self.request.session.release()
        return None

    def draft_request(self) -> DraftRequest:
        """Tell a drafter what it may know."""
        return DraftRequest(
            prompt_ids=tuple(self.tokens),
            max_tokens=self._max_tokens,
            sampler=self._draft_sampler(),
            prediction_ids=self.request.prediction_ids,
            sequence=self.sequence,
            grammar=self._pipeline.grammar,
            input=self.request.input,
            context_ids=self._context_ids(),
        )

    def _context_ids(self) -> tuple[int, ...]:
        """Return the input, if what it says may come up in the text."""
        given = self.request.input
        return given if isinstance(given, tuple) and self._target.shares_input_ids else ()

    def _draft_sampler(self) -> KeyedDraftSampler:
        params = self.request.params
        return KeyedDraftSampler(
            params.temperature,
            self.noise,
            self.rule,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            vocab_size=self._target.vocab_size,
            grammar=self._pipeline.grammar,
        )

    @property
    def room(self) -> int:
        """How many drafted tokens could be emitted at most: the round adds one of its own."""
        return self._max_tokens - len(self.tokens) - 1

    @property
    def most_drafted(self) -> int:
        """How many tokens may be drafted at most."""
        limit = self.request.max_draft
        return self.room if limit is None else min(self.room, limit)

    def admits(self, member: Member) -> bool:
        """Whether the request lets a drafter draft for it."""
        request = self.request
        if member.drafter.needs_grammar:  # it serves whoever else drafts
            is_named = self._pipeline.grammar is not None and request.drafters != ()
        else:
            is_named = request.drafters is None or member.name in request.drafters
        return request.speculate and request.max_draft != 0 and is_named

    @property
    def may_draft(self) -> bool:
        """Whether any drafter could draft for it."""
        return any(not seat.is_out for seat in self.seats)

    def seat(self, member: Member) -> Seat:
        """Return a drafter's place at this request."""
        for seat in self.seats:
            if seat.member is member:
                return seat
        raise KeyError(member.name)

    def trim(self, tree: DraftTree) -> DraftTree:
        """Drop the nodes of a draft that could not be emitted."""
        return trimmed(
            tree, room=self.room, grammar=self._pipeline.grammar, is_final=self._stopper.is_final
        )

    def complete(self, tree: DraftTree, budget: int) -> DraftTree:
        """Let a draft that was worked out go on with what the grammar forces, to `budget` nodes."""
        grammar = self._pipeline.grammar
        if grammar is None:
            return tree
        return completed(
            tree, budget, room=self.room, grammar=grammar, is_final=self._stopper.is_final
        )

    def lead(self, member: Member, budget: int) -> int:
        """Return how many tokens of a drafter's next draft, of so many, take it no step."""
        grammar = self._pipeline.grammar
        if grammar is None or not member.drafter.follows_forced or budget <= 0:
            return 0
        return 0 if self._draft_sampler().has_laws else len(grammar.forced(budget))

    # -- the prompt ------------------------------------------------------------------------------

    @property
    def has_input_to_read(self) -> bool:
        """Whether the encoder has yet to read the input."""
        return self._input is not None

    def read_input(self) -> float:
        """Let the encoder read the input; returns the seconds that took it."""
        assert self._input is not None
        seconds = self._target.read(self.sequence, self._input)
        self._input = None
        return seconds

    @property
    def has_begun(self) -> bool:
        """Whether the prompt has been read and something emitted."""
        return self.stats.rounds > 0

    @property
    def unread(self) -> int:
        """How many tokens are not cached yet: 1 once the prompt is read."""
        return len(self.tokens) - self._target.cached(self.sequence)

    @property
    def _is_scored(self) -> bool:
        return self.request.scores is not None and not self.has_begun

    def share(self, rows: int) -> int:
        """Return how many it reads of so many rows that it may."""
        return min(rows, MOST_SCORED_ROWS) if self._is_scored else rows

    def piece(self, count: int) -> Rows:
        """Return the next `count` tokens of a prompt as rows of a pass."""
        cached = self._target.cached(self.sequence)
        pending = tuple(self.tokens[cached : cached + count])
        return Rows(self.sequence, pending, scores_pending=self._is_scored)

    def take_scores(self, rows: Rows, logits: Tensor) -> Tensor:
        """Return the logits from the root on; those before it have told of the prompt then."""
        if not rows.scores_pending:
            return logits
        assert self.request.scores is not None
        before = len(rows.pending) - 1
        self.request.scores.add(logits[:before], rows.pending[1:])
        return logits[before:]

    def keep_piece(self, features: Tensor | None) -> None:
        """Keep the rows of a piece that was scored, all but the last, which is read again.

        For a target the last row of a pass is one to decode from, and may have other bits than a
        row in the middle of a prompt.
        """
        self._target.commit(self.sequence, ())
        self._target.crop(self.sequence, self._target.cached(self.sequence) - 1)
        if features is not None:
            self._features.append(features[:-1])

    # -- a round ---------------------------------------------------------------------------------

    def rows(self, tree: DraftTree) -> Rows:
        """Return the request's share of the next pass."""
        pending = tuple(self.tokens[self._target.cached(self.sequence) :])
        return Rows(self.sequence, pending, tree, scores_pending=self._is_scored)

    def all_features(self, features: Tensor) -> Tensor:
        """Return features of a round behind those of the pieces read before it, if any were."""
        if self._features:
            features = torch.cat([*self._features, features])
            self._features = []
        return features

    def sampled(self, logits: Tensor, tree: DraftTree) -> SampledRows:
        """Return what the target draws at each row of `logits` [1 + N, V]."""
        return SampledRows(
            logits,
            tree,
            self._pipeline,
            self.noise,
            len(self.tokens),
            request=self.request.name,
        )

    def advance(
        self,
        tree: DraftTree,
        verification: Verification,
        logits: Tensor,
        drafter: str | None = None,
    ) -> Chunk:
        """Emit a verified round token by token, up to the first that ends the request.

        `drafter` is the name of the one that the tree is of.
        """
        emitted: list[tuple[int, Source]] = []
        text = ""
        for token, source in _outcome(tree, verification):
            emitted.append((token, source))
            decision = self._stopper.push(token)
            text += decision.text
            self.finish_reason = decision.finish_reason
            if self.finish_reason is not None:
                break
        ids = [token for token, _ in emitted]
        num_accepted = sum(source == "accepted" for _, source in emitted)
        cut = num_accepted == len(emitted)
        path = verification.path[:num_accepted]
        # The last emitted token is never cached: it is the root of the next pass.
        self._target.commit(self.sequence, path[:-1] if cut else path)
        logprobs = self._logprobs(logits, path, ids)
        self.tokens.extend(ids)
        self._pipeline.append(ids)
        self.stats.record(tree, path, len(ids), cut=cut)
        tokens = (
            Token(token, source, record)
            for (token, source), record in zip(emitted, logprobs, strict=True)
        )
        return Chunk(text, tuple(tokens), self.finish_reason, drafter, len(tree))

    def _logprobs(self, logits: Tensor, path: Sequence[int], ids: Sequence[int]) -> list[Any]:
        top = self.request.params.logprobs
        if top is None:
            return [None] * len(ids)
        rows = [0, *(node + 1 for node in path)][: len(ids)]
        return token_logprobs(logits[rows], ids, top)


def _outcome(tree: DraftTree, verification: Verification) -> Iterator[tuple[int, Source]]:
    for node in verification.path:
        yield tree.tokens[node], "accepted"
    last = verification.path[-1] if verification.path else -1
    source: Source = "plain"
    if tree.tokens:
        source = "recovered" if last in tree.parents else "bonus"
    yield verification.next_token, source
