"""A request, and all that the engine knows of it while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from outrider.drafters.base import DraftRequest
from outrider.engine.detokenize import Detokenizer
from outrider.engine.prefixes import Prefix
from outrider.engine.scoring import MOST_SCORED_ROWS, PromptScores
from outrider.engine.seat import Member, Seat
from outrider.engine.session import Session
from outrider.engine.stats import Stats
from outrider.engine.stopping import Stopper
from outrider.errors import OptionError, PromptError
from outrider.sampling.logprobs import token_logprobs
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.params import SamplingParams
from outrider.sampling.pipeline import LogitsPipeline
from outrider.sampling.rows import SampledRows
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.targets.base import Rows, Target
from outrider.trees.layout import depths, prune, worth_scoring
from outrider.trees.runs import lengthen
from outrider.types import (
    AnyRule,
    Chunk,
    DraftTree,
    FinishReason,
    LossyRule,
    Rule,
    Source,
    Token,
    TokenIds,
    Verification,
)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What is asked for: a prompt as ids, the options, and a seed already chosen.

    The last four fields are the request's own word on speculation, within what its engine does.
    """

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    eos_token_ids: tuple[int, ...] = ()
    tokenizer: PreTrainedTokenizerBase | None = None
    prediction_ids: tuple[int, ...] | None = None
    session: Session | None = None
    scores: PromptScores | None = None
    """Where the log-probabilities of the prompt's tokens go, if they are wanted."""
    name: str = "request"
    speculate: bool = True
    """False: plain decoding, whatever the engine does for others."""
    max_draft: int | None = None
    """Most tokens drafted for it in a round; the engine may draft fewer, and never drafts more."""
    drafters: tuple[str, ...] | None = None
    """The engine's drafters that may draft for it, by their names there; None for all."""
    rule: Rule | None = None
    """The rule that verifies its drafts, the engine's if None."""


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
        lossy = str(self.rule) if isinstance(self.rule, LossyRule) else None
        self.stats = Stats(prompt_tokens=len(request.prompt_ids), lossy=lossy)
        self.finish_reason: FinishReason | None = None
        self.seats: list[Seat] = []
        """One for each drafter of the engine."""
        self._max_tokens = most_tokens(request, target)
        self.noise = KeyedNoise(request.seed)
        self._pipeline = _pipeline(request, target)
        self._stopper = _stopper(request, target)
        self._target = target
        self._features: list[Tensor] = []  # of the pieces of the prompt that were read
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
        )

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
        """Drop the nodes that could not be emitted: past the budget, outside the grammar, and ends
        of text.

        An end of text is not worth a row: when the target draws it, the request ends without one.
        A sampled node stays whatever it carries: under the rules that reject, whether a node is
        submitted must not depend on the token drawn for it. Only what no rule comes to may go.
        """
        grammar, room, is_drawn = self._pipeline.grammar, self.room, tree.q is not None
        may_pass = [True] * len(tree) if grammar is None else grammar.reachable(tree)
        allowed = worth_scoring(tree, may_pass)
        keep = [
            level <= room and is_allowed and (is_drawn or not self._stopper.is_final(token))
            for token, level, is_allowed in zip(tree.tokens, depths(tree), allowed, strict=True)
        ]
        return tree if all(keep) else prune(tree, keep)

    def complete(self, tree: DraftTree, budget: int) -> DraftTree:
        """Let a draft that was worked out go on with what the grammar forces, to `budget` nodes."""
        grammar = self._pipeline.grammar
        if grammar is None or tree.q is not None or not len(tree):
            return tree

        def following(path: TokenIds, limit: int) -> list[int]:
            run = grammar.forced(min(limit, self.room - len(path)), path)
            return list(takewhile(lambda token: not self._stopper.is_final(token), run))

        return lengthen(tree, budget, following)

    def lead(self, member: Member, budget: int) -> int:
        """Return how many tokens of a drafter's next draft, of so many, take it no step."""
        grammar = self._pipeline.grammar
        if grammar is None or not member.drafter.follows_forced or budget <= 0:
            return 0
        return 0 if self._draft_sampler().has_laws else len(grammar.forced(budget))

    # -- the prompt ------------------------------------------------------------------------------

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


def check_request(request: Request, target: Target) -> None:
    """Raise PromptError or OptionError for a request the target cannot run; does no work."""
    check_prompt(request.prompt_ids, target)
    _pipeline(request, target)
    _stopper(request, target)
    check_scores(request, target)
    for token in request.prediction_ids or ():
        if not isinstance(token, int) or not 0 <= token < target.vocab_size:
            allowed = f"ids from 0 to {target.vocab_size - 1}, the target's vocabulary"
            raise OptionError(f"prediction holds {token!r}: expected {allowed}")


def check_scores(request: Request, target: Target) -> None:
    """Raise OptionError if the prompt's tokens are to be scored, and the target cannot do that."""
    if request.scores is not None and not target.scores_prompts:
        raise OptionError(f"scores of a prompt are wanted; {type(target).__name__} gives none")


def check_prompt(prompt_ids: Sequence[int], target: Target) -> None:
    """Raise PromptError for a prompt the target cannot continue."""
    if not prompt_ids:
        raise PromptError("the prompt is empty: there is nothing to continue")
    if len(prompt_ids) >= target.max_positions:
        raise PromptError(
            f"the prompt has {len(prompt_ids)} tokens; the model holds {target.max_positions} "
            "in all, so at least one must be left for the answer"
        )
    for token in prompt_ids:
        if not 0 <= token < target.vocab_size:
            raise PromptError(
                f"prompt id {token} is outside the vocabulary 0..{target.vocab_size - 1}"
            )


def most_tokens(request: Request, target: Target) -> int:
    """Return how many tokens a request can ever hold: its prompt, and all it may write."""
    return min(len(request.prompt_ids) + request.params.max_new_tokens, target.max_positions)


def _pipeline(request: Request, target: Target) -> LogitsPipeline:
    return LogitsPipeline(
        request.params, request.prompt_ids, request.eos_token_ids, target.vocab_size, target.device
    )


def _stopper(request: Request, target: Target) -> Stopper:
    return Stopper(
        request.params,
        request.eos_token_ids,
        prompt_ids=request.prompt_ids,
        max_new_tokens=most_tokens(request, target) - len(request.prompt_ids),
        detokenizer=None if request.tokenizer is None else Detokenizer(request.tokenizer),
    )
