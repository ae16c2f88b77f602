"""The round loop: propose, score, verify, commit, emit, for one request or many.

Plain decoding is the same loop without a drafter. The loop is a generator; whoever stops taking
from it early leaves target, drafter and sessions as clean as one who takes everything.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from outrider.drafters.base import Drafter
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
        if max_draft is not None and max_draft < 0:
            raise OptionError(f"max_draft is {max_draft}; it must be 0 or more")
        if max_batch < 1:
            raise OptionError(f"max_batch is {max_batch}; it must be 1 or more")
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
            for state in active.values():
                self._end(state)

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
        try:
            state.draft_state = self.drafter.begin(state.draft_request(self.rule))
        except Exception as error:  # noqa: BLE001  a drafter's fault must not cost the user the text
            self._drop([state], error)

    def _propose(self, states: Sequence[RequestState]) -> list[DraftTree]:
        trees = [NO_DRAFT] * len(states)
        budgets = [state.budget(self.max_draft) for state in states]
        asked = [
            i for i, state in enumerate(states) if state.draft_state is not None and budgets[i] > 0
        ]
        if self.drafter is None or not asked:
            return trees
        try:
            proposals = self.drafter.propose(
                [states[i].draft_state for i in asked], [budgets[i] for i in asked]
            )
            for i, tree in zip(asked, proposals, strict=True):
                self._check(tree, budgets[i])
                trees[i] = states[i].trim(tree)
        except Exception as error:  # noqa: BLE001
            self._drop([states[i] for i in asked], error)
            return [NO_DRAFT] * len(states)
        return trees

    def _observe(self, states: Sequence[RequestState], chunks: Sequence[Chunk]) -> None:
        pairs = [
            (state, [token.id for token in chunk.tokens])
            for state, chunk in zip(states, chunks, strict=True)
            if state.draft_state is not None and state.finish_reason is None
        ]
        if self.drafter is None or not pairs:
            return
        try:
            self.drafter.observe([s.draft_state for s, _ in pairs], [ids for _, ids in pairs])
        except Exception as error:  # noqa: BLE001
            self._drop([state for state, _ in pairs], error)

    def _end(self, state: RequestState) -> None:
        state.close()
        if self.drafter is not None and state.draft_state is not None:
            draft_state, state.draft_state = state.draft_state, None
            self.drafter.end(draft_state)

    def _drop(self, states: Sequence[RequestState], error: Exception) -> None:
        assert self.drafter is not None
        reason = f"{type(error).__name__}: {error}"
        for state in states:
            draft_state, state.draft_state = state.draft_state, None
            state.stats.drafter_error = reason
            if draft_state is not None:
                self.drafter.end(draft_state)
        warnings.warn(
            f"drafter {self.drafter.name} raised {reason}; decoding goes on without it",
            DrafterWarning,
            stacklevel=2,
        )

    def _check(self, tree: DraftTree, budget: int) -> None:
        if len(tree) > budget:
            raise ValueError(f"{len(tree)} tokens proposed where {budget} were asked for")
        for token in tree.tokens:
            if not 0 <= token < self.target.vocab_size:
                raise ValueError(
                    f"token {token} proposed; the vocabulary ends at {self.target.vocab_size - 1}"
                )


def _draft_limit(target: Target, drafter: Drafter[Any] | None, max_draft: int | None) -> int:
    if drafter is None:
        return 0
    if max_draft is not None:
        return max_draft
    limit = drafter.default_max_draft
    return limit if target.preferred_rows is None else min(limit, target.preferred_rows - 1)
