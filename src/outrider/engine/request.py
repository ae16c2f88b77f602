"""A request, and all that the engine knows of it while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from outrider.drafters.base import DraftRequest
from outrider.engine.detokenize import Detokenizer
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
from outrider.trees.layout import depths, prune
from outrider.types import Chunk, DraftTree, FinishReason, Rule, Source, Token, Verification


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What is asked for: a prompt as ids, the options, and a seed already chosen."""

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    eos_token_ids: tuple[int, ...] = ()
    tokenizer: PreTrainedTokenizerBase | None = None
    prediction_ids: tuple[int, ...] | None = None
    session: Session | None = None
    name: str = "request"


class RequestState:
    """A running request: its tokens, its place in the target's cache, its sampler and stopper."""

    def __init__(self, request: Request, target: Target) -> None:
        check_prompt(request.prompt_ids, target)
        self.request = request
        self.tokens = list(request.prompt_ids)
        self.stats = Stats(prompt_tokens=len(request.prompt_ids))
        self.finish_reason: FinishReason | None = None
        self.seats: list[Seat] = []
        """One for each drafter of the engine."""
        self._max_tokens = most_tokens(request, target)
        self.noise = KeyedNoise(request.seed)
        self._pipeline = _pipeline(request, target)
        self._stopper = _stopper(request, target)
        self._target = target
        self.sequence = self._open()

    def _open(self) -> int:
        session = self.request.session
        if session is None:
            return self._target.open(self._max_tokens)
        sequence = session.acquire(self._target, self.request.prompt_ids, self._max_tokens)
        self.stats.reused_tokens = self._target.cached(sequence)
        return sequence

    def close(self) -> None:
        """Give the sequence back: to its session, or to the target."""
        if self.request.session is None:
            self._target.close(self.sequence)
        else:
            self.request.session.release(self.tokens)

    def draft_request(self, rule: Rule) -> DraftRequest:
        """Tell a drafter what it may know."""
        params = self.request.params
        return DraftRequest(
            prompt_ids=tuple(self.tokens),
            max_tokens=self._max_tokens,
            sampler=KeyedDraftSampler(
                params.temperature,
                self.noise,
                rule,
                top_k=params.top_k,
                top_p=params.top_p,
                min_p=params.min_p,
                vocab_size=self._target.vocab_size,
            ),
            prediction_ids=self.request.prediction_ids,
            sequence=self.sequence,
        )

    @property
    def room(self) -> int:
        """How many tokens are worth drafting at most: the round adds one of its own."""
        return self._max_tokens - len(self.tokens) - 1

    def seat(self, member: Member) -> Seat:
        """Return a drafter's place at this request."""
        for seat in self.seats:
            if seat.member is member:
                return seat
        raise KeyError(member.name)

    def trim(self, tree: DraftTree) -> DraftTree:
        """Drop the nodes that could not be emitted: past the budget, and ends of text.

        An end of text is not worth a row: when the target draws it, the request ends without one.
        A sampled node stays whatever it carries: under the rules that reject, whether a node is
        submitted must not depend on the token drawn for it.
        """
        room = self.room
        keep = [
            level <= room and (tree.q is not None or not self._stopper.is_final(token))
            for token, level in zip(tree.tokens, depths(tree), strict=True)
        ]
        return tree if all(keep) else prune(tree, keep)

    def rows(self, tree: DraftTree) -> Rows:
        """Return the request's share of the next pass."""
        pending = tuple(self.tokens[self._target.cached(self.sequence) :])
        return Rows(self.sequence, pending, tree)

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

    def advance(self, tree: DraftTree, verification: Verification, logits: Tensor) -> Chunk:
        """Emit a verified round token by token, up to the first that ends the request."""
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
        return Chunk(text, tuple(tokens), self.finish_reason)

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
    for token in request.prediction_ids or ():
        if not isinstance(token, int) or not 0 <= token < target.vocab_size:
            allowed = f"ids from 0 to {target.vocab_size - 1}, the target's vocabulary"
            raise OptionError(f"prediction holds {token!r}: expected {allowed}")


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
