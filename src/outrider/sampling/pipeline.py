"""The one way from logits to the scores tokens are drawn from, for plain decoding and drafts alike.

Every option acts on each row with that row's own prefix, so a drafted position is treated exactly
as plain decoding would treat it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from outrider.errors import OptionError
from outrider.sampling.custom import Complete, CustomProcessors, NotFirst, TailFilter
from outrider.sampling.filters import Filter, build_filters
from outrider.sampling.grammar_state import GrammarState
from outrider.sampling.params import SamplingParams
from outrider.sampling.processors import (
    BadWords,
    LogitBias,
    MinNewTokens,
    OutputPenalty,
    Processor,
    RepetitionPenalty,
)
from outrider.types import TokenIds


class LogitsPipeline:
    """Turns a request's logits into scores; a masked token's score is -inf.

    The order is Transformers': bias, penalties, bans, custom processors; then the grammar, so that
    nothing undoes its bans; then, unless greedy, temperature, top_k, top_p and min_p. Options at
    their neutral values cost nothing.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: TokenIds,
        eos_token_ids: Iterable[int],
        vocab_size: int,
        device: torch.device,
    ) -> None:
        """Raises OptionError for ids the target does not have, and a grammar that is not bound."""
        eos_token_ids = tuple(eos_token_ids)
        _check_ids(params, vocab_size)
        custom = [p for p in params.logits_processors if not isinstance(p, TailFilter | NotFirst)]
        self.is_greedy = params.is_greedy
        self._processors = _processors(params, prompt_ids, eos_token_ids, vocab_size, device)
        limit = params.max_new_tokens
        self._custom = (
            CustomProcessors(custom, prompt_ids, device, max_new_tokens=limit) if custom else None
        )
        self.grammar = _grammar(params, eos_token_ids, vocab_size)
        """Where the request stands in its grammar, if it has one."""
        self._filters = _filters(params)

    @property
    def is_lazy(self) -> bool:
        """Whether rows must be processed one by one, in order, and only if asked for."""
        return self._custom is not None

    @property
    def _changes_scores(self) -> bool:
        return bool(self._processors) or not (self._custom is None and self.grammar is None)

    def append(self, tokens: TokenIds) -> None:
        """Make emitted tokens part of every row's prefix from now on."""
        for processor in self._processors:
            processor.append(tokens)
        if self._custom is not None:
            self._custom.append(tokens)
        if self.grammar is not None:
            self.grammar.append(tokens)

    def scores(self, logits: Tensor, paths: Sequence[tuple[int, ...]]) -> Tensor:
        """Return scores [R, V] for logits [R, V], in float32 or the logits' float64.

        The prefix of row r is everything appended so far and then `paths[r]`. The logits are left
        as they are; without options they are the scores.
        """
        scores = logits if logits.dtype == torch.float64 else logits.float()
        if self._changes_scores and scores is logits:
            scores = scores.clone()  # custom processors, too, may write into what they are given
        for processor in self._processors:
            processor.apply(scores, paths)
        if self._custom is not None:
            scores = self._custom.apply(scores, paths)
        if self.grammar is not None:
            self.grammar.apply(scores, paths)
        for apply_filter in self._filters:
            scores = apply_filter(scores)
        return scores

    def probs(self, scores: Tensor) -> Tensor:
        """Return the distribution [R, V] that tokens are drawn from: NaN where there is none.

        Greedy is a point mass on the highest score, the lowest id among equals.
        """
        probs = scores.softmax(dim=-1)
        if not self.is_greedy:
            return probs
        token = scores.argmax(dim=-1, keepdim=True)
        # 0 * NaN keeps the mark of a row that has no distribution.
        return (probs * 0).scatter_add_(-1, token, torch.ones_like(probs[..., :1]))


def _processors(
    params: SamplingParams,
    prompt_ids: TokenIds,
    eos_token_ids: Iterable[int],
    vocab_size: int,
    device: torch.device,
) -> list[Processor]:
    chain: list[Processor] = []
    if params.logit_bias:
        chain.append(LogitBias(params.logit_bias, device))
    if params.repetition_penalty != 1:
        chain.append(RepetitionPenalty(params.repetition_penalty, prompt_ids, vocab_size, device))
    if params.presence_penalty or params.frequency_penalty:
        penalties = params.presence_penalty, params.frequency_penalty
        chain.append(OutputPenalty(*penalties, vocab_size, device))
    if params.bad_words:
        chain.append(BadWords(params.bad_words, prompt_ids, device))
    if params.min_new_tokens:
        ending = set(params.stop_token_ids) | set(() if params.ignore_eos else eos_token_ids)
        known = sorted(token for token in ending if token < vocab_size)
        chain.append(MinNewTokens(params.min_new_tokens, known, device))
    first = [p.ids for p in params.logits_processors if isinstance(p, NotFirst)]
    chain += [MinNewTokens(1, [t for t in ids if t < vocab_size], device) for ids in first]
    return chain


def _grammar(
    params: SamplingParams, eos_token_ids: Iterable[int], vocab_size: int
) -> GrammarState | None:
    if params.grammar is None:
        return None
    if params.grammar.compiled is None:
        raise OptionError("grammar is not bound to a tokenizer: params.for_tokenizer(...) does it")
    return params.grammar.compiled.begin(eos_token_ids, params.stop_token_ids, vocab_size)


def _filters(params: SamplingParams) -> list[Filter]:
    if params.is_greedy or any(isinstance(p, Complete) for p in params.logits_processors):
        return []
    filters = build_filters(
        params.temperature, top_k=params.top_k, top_p=params.top_p, min_p=params.min_p
    )
    tails = (p for p in params.logits_processors if isinstance(p, TailFilter))
    return [*filters, *(partial(tail, None) for tail in tails)]


def _check_ids(params: SamplingParams, vocab_size: int) -> None:
    """Refuse ids the target does not have; the options themselves cannot know its vocabulary."""
    options = {
        "logit_bias": params.logit_bias,
        "bad_words": [token for word in params.bad_words for token in word],
        "stop_token_ids": params.stop_token_ids,
    }
    for name, ids in options.items():
        wrong = [token for token in ids if token >= vocab_size]
        if wrong:
            allowed = f"ids from 0 to {vocab_size - 1}, the target's vocabulary"
            raise OptionError(f"{name} holds {wrong[0]}: expected {allowed}")
