"""The suffix drafter as a class that vLLM drafts with: its method `custom_class`.

This runs within vLLM's own environment, so it imports nothing but the pure part of the drafters.
vLLM tells neither which request a row is nor when one ends. But what a suffix drafter knows of a
request is a function of the request's text alone: whoever has read the beginning of a row's text
may go on with that row.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.drafters.base import DraftRequest
from outrider.drafters.suffix import SuffixDrafter, SuffixState
from outrider.scale.schedule import KEY, Span, from_values, span_for

_SPARE = 64
"""Readers kept for requests that have lost their rows: those that were put off may come back."""


@dataclass(slots=True, eq=False)
class _Reader:
    """What was read of one text."""

    state: SuffixState
    text: array[int] = field(default_factory=lambda: array("i"))

    def knows(self, tokens: NDArray[np.integer[Any]]) -> bool:
        """Whether the text read so far is how a row's tokens begin."""
        size = len(self.text)
        if size > len(tokens) or self.text[-1] != tokens[size - 1]:
            return False
        return np.array_equal(np.frombuffer(self.text, dtype=np.intc), tokens[:size])


class SuffixProposer:
    """Proposes what outrider's suffix drafter copies, as far as the schedule says.

    vLLM makes it with its configuration, in which `additional_config["outrider"]` is a schedule.
    """

    def __init__(self, vllm_config: Any) -> None:
        schedule = from_values(vllm_config.additional_config[KEY])
        self._schedule = schedule
        self._most_tokens = int(vllm_config.model_config.max_model_len)
        # Drafters differ in how far they copy, not in what they know of a text.
        self._drafters = {span: _drafter(span) for span in schedule if span.length}
        self._reading = next(iter(self._drafters.values()))
        self._readers: dict[int, _Reader] = {}
        self._spare: deque[_Reader] = deque(maxlen=_SPARE)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load nothing: there are no weights."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: NDArray[np.integer[Any]],
        token_ids_cpu: NDArray[np.integer[Any]],
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Return a draft for each row, none for those that have not sampled a token yet.

        `token_ids_cpu` [rows, most tokens] holds the texts, the tokens just sampled included,
        and `num_tokens_no_spec` [rows] their lengths.
        """
        rows = {
            row: token_ids_cpu[row, : num_tokens_no_spec[row]]
            for row, sampled in enumerate(sampled_token_ids)
            if len(sampled)
        }
        self._seat(rows)
        drafts: list[list[int]] = [[] for _ in sampled_token_ids]
        span = span_for(self._schedule, len(rows))
        if not span.length:
            return drafts
        states = [self._readers[row].state for row in rows]
        budgets = [min(span.length, self._most_tokens - len(text) - 1) for text in rows.values()]
        trees = self._drafters[span].propose(states, budgets)
        for row, tree in zip(rows, trees, strict=True):
            drafts[row] = list(tree.tokens)
        return drafts

    def _seat(self, rows: dict[int, NDArray[np.integer[Any]]]) -> None:
        """Give every row a reader, and let it read what is new."""
        before, self._readers = self._readers, {}
        for row, tokens in rows.items():
            if row in before and before[row].knows(tokens):
                self._readers[row] = before.pop(row)
        # Rows move when others end, and requests are put off and come back elsewhere.
        left = [*before.values(), *self._spare]
        for row, tokens in rows.items():
            if row not in self._readers:
                self._readers[row] = _take(left, tokens) or self._begin(tokens)
            self._read(self._readers[row], tokens)
        self._spare = deque(left, maxlen=_SPARE)

    def _begin(self, tokens: NDArray[np.integer[Any]]) -> _Reader:
        ids = tokens.tolist()
        request = DraftRequest(tuple(ids), self._most_tokens, sampler=_NoSampler())
        return _Reader(self._reading.begin(request), array("i", ids))

    def _read(self, reader: _Reader, tokens: NDArray[np.integer[Any]]) -> None:
        new = tokens[len(reader.text) :].tolist()
        if new:
            self._reading.observe([reader.state], [new])
            reader.text.extend(new)


class _NoSampler:
    """Stands for the sampler of a request: a drafter that copies draws nothing."""

    is_greedy = True
    has_laws = False

    def draw(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("a copied draft is not drawn")

    candidates = draw


def _drafter(span: Span) -> SuffixDrafter:
    # vLLM verifies chains only.
    return SuffixDrafter(length=span.length, min_probability=span.least_chance, branches=False)


def _take(readers: list[_Reader], tokens: NDArray[np.integer[Any]]) -> _Reader | None:
    """Take the reader that has read most of a text out of a list, if any has read some of it."""
    known = [reader for reader in readers if reader.knows(tokens)]
    best = max(known, key=lambda reader: len(reader.text), default=None)
    if best is not None:
        readers.remove(best)
    return best
