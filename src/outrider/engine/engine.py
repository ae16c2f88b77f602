"""The round loop: propose, score, verify, commit, emit, for one request or many.

Plain decoding is the same loop without a drafter. The loop is a generator; whoever stops taking
from it early leaves target, drafter and sessions as clean as one who takes everything.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, get_args

from outrider.drafters.base import Drafter
from outrider.engine.proposal import check_proposal
from outrider.engine.request import Request, RequestState
from outrider.errors import DrafterWarning, OptionError
from outrider.sampling.noise import KeyedRandomness
from outrider.sampling.rows import draw_rows
from outrider.targets.base import Target
from outrider.types import NO_DRAFT, Chunk, DraftTree, Rule
from outrider.verification import verify


class Engine:
    """Decodes requests with a target, a drafter or none, and a verification rule."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter[Any] | None = None,
        *,
        rule: Rule = "match",
        max_draft: int | None = None,
        max_batch: int = 8,
    ) -> None:
        check_engine_options(rule, max_draft, max_batch)
        self.target = target
        self.drafter = drafter
        self.rule: Rule = rule
        self.max_batch = max_batch
        self.max_draft = _draft_limit(target, drafter, max_draft)

    def run(
        self, requests: Iterable[Request]
    ) -> Generator[tuple[int, Chunk, RequestState], None, None]:
        """Decode all requests, at most `max_batch` at a time; yield what each round adds.

        Yields (index of the request, chunk, its state). A request that ends makes room for the
        next at once. Raises PromptError for a prompt that cannot be decoded from, and
        NumericsError for logits that are no numbers.
        """
        waiting = deque(enumerate(requests))
        active: dict[int, RequestState] = {}
        try:
            while waiting or active:
                while waiting and len(active) < self.max_batch:
                    index, request = waiting.popleft()
                    active[index] = RequestState(request, self.target)
                    self._begin(active[index])
                chunks = self._round(list(active.values()))
                for (index, state), chunk in zip(list(active.items()), chunks, strict=True):
                    if state.finish_reason is not None:
                        self._end(active.pop(index))
                    yield index, chunk, state
        finally:
            with ExitStack() as stack:  # each request ends, whatever the end of another raises
                for state in active.values():
                    stack.callback(self._end, state)

    def _round(self, states: Sequence[RequestState]) -> list[Chunk]:
        started = time.perf_counter()
        trees = self._propose(states)
        drafted = time.perf_counter()
        scored = self.target.score(
            [state.rows(tree) for state, tree in zip(states, trees, strict=True)]
        )
        rows = [
            state.sampled(logits, tree)
            for state, logits, tree in zip(states, scored.logits, trees, strict=True)
        ]
        if self.rule == "match":
            draw_rows(rows)
        chunks = []
        for state, tree, row, logits in zip(states, trees, rows, scored.logits, strict=True):
            randomness = KeyedRandomness(state.noise, len(state.tokens))
            verification = verify(self.rule, row, tree, randomness)
            chunks.append(state.advance(tree, verification, logits))
        verified = time.perf_counter()
        self._observe(states, chunks)
        observed = time.perf_counter()
        draft_s = (drafted - started) + (observed - verified)
        for state in states:
            is_first = state.stats.rounds == 1
            state.stats.draft_s += draft_s
            state.stats.prefill_s += scored.seconds if is_first else 0.0
            state.stats.score_s += 0.0 if is_first else scored.seconds
            state.stats.host_s += observed - started - draft_s - scored.seconds
        return chunks

    # -- the drafter, which may fail without harm -----------------------------------------------

    def _begin(self, state: RequestState) -> None:
        if self.drafter is None:
            return
        started = time.perf_counter()
        try:
            state.draft_state = self.drafter.begin(state.draft_request(self.rule))
            state.is_drafted = True
        except Exception as error:  # noqa: BLE001  a drafter's fault must not cost the user the text
            self._drop([state], error)
        state.stats.draft_s += time.perf_counter() - started

    def _propose(self, states: Sequence[RequestState]) -> list[DraftTree]:
        trees = [NO_DRAFT] * len(states)
        budgets = [state.budget(self.max_draft) for state in states]
        asked = [i for i, state in enumerate(states) if state.is_drafted and budgets[i] > 0]
        if self.drafter is None or not asked:
            return trees
        try:
            proposals = list(
                self.drafter.propose(
                    [states[i].draft_state for i in asked], [budgets[i] for i in asked]
                )
            )
            if len(proposals) != len(asked):
                raise ValueError(f"{len(proposals)} trees proposed for {len(asked)} requests")
        except Exception as error:  # noqa: BLE001
            self._drop([states[i] for i in asked], error)
            return trees
        for i, tree in zip(asked, proposals, strict=True):
            try:
                check_proposal(tree, budgets[i], self.target.vocab_size)
                trees[i] = states[i].trim(tree)
            except (TypeError, ValueError) as error:
                self._drop([states[i]], error)
        return trees

    def _observe(self, states: Sequence[RequestState], chunks: Sequence[Chunk]) -> None:
        pairs = [
            (state, [token.id for token in chunk.tokens])
            for state, chunk in zip(states, chunks, strict=True)
            if state.is_drafted
        ]
        if self.drafter is None or not pairs:
            return
        try:
            self.drafter.observe([s.draft_state for s, _ in pairs], [ids for _, ids in pairs])
        except Exception as error:  # noqa: BLE001
            self._drop([state for state, _ in pairs], error)

    def _end(self, state: RequestState) -> None:
        state.close()
        if self.drafter is not None and state.is_drafted:
            state.is_drafted = False
            try:
                self.drafter.end(state.draft_state)
            except Exception as error:  # noqa: BLE001
                self._drop([state], error)

    def _drop(self, states: Sequence[RequestState], error: Exception) -> None:
        assert self.drafter is not None
        reason = f"{type(error).__name__}: {error}"
        for state in states:
            state.stats.drafter_error = reason
            if state.is_drafted:
                state.is_drafted = False
                # It has raised once already; a second fault of the same drafter says no more.
                with suppress(Exception):
                    self.drafter.end(state.draft_state)
        warnings.warn(
            f"drafter {self.drafter.name} raised {reason}; decoding goes on without it",
            DrafterWarning,
            stacklevel=2,
        )


def check_engine_options(rule: Rule, max_draft: int | None, max_batch: int) -> None:
    """Raise OptionError for a rule that does not exist, or a limit out of its range."""
    if rule not in get_args(Rule):
        raise OptionError(f"rule is {rule!r}; it must be one of {', '.join(get_args(Rule))}")
    for name, value, least in (("max_draft", max_draft, 0), ("max_batch", max_batch, 1)):
        if value is None and name == "max_draft":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise OptionError(f"{name} is {value!r}; it must be an integer of at least {least}")


def _draft_limit(target: Target, drafter: Drafter[Any] | None, max_draft: int | None) -> int:
    if drafter is None:
        return 0
    if max_draft is not None:
        return max_draft
    limit = drafter.default_max_draft
    return limit if target.preferred_rows is None else min(limit, target.preferred_rows - 1)
