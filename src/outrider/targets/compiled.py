"""Passes through a compiled function: every batch ragged, no padding, no Python between layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from outrider.targets.cache import KVCache
from outrider.targets.features import side_by_side
from outrider.targets.graph import Pass
from outrider.targets.kernels import MOST_FEW_ROWS
from outrider.targets.passes import Passes
from outrider.targets.work import Span, Work
from outrider.trees.bits import bit_words

_PROMPT_ROWS = 256  # the states of all layers are held as long as a pass takes
_PACKED_PROMPT_ROWS = 64  # packed weights are read again for each so many rows in any case
_RAGGED_ROWS = 16  # pending tokens that may still share a pass with others


class CompiledPasses(Passes):
    """Runs spans of any sequences side by side, up to `most_rows` in a pass.

    With few rows (`MOST_FEW_ROWS`) every row has the same bits whatever the pass holds, so
    invariant numerics needs no more than passes that stay that small.
    """

    def __init__(
        self,
        run: Pass,
        cache: KVCache,
        device: torch.device,
        *,
        few_rows: bool,
        is_packed: bool = False,
    ) -> None:
        """`is_packed`: the pass reads packed weights of eight bits."""
        super().__init__(device)
        self._run_graph = run
        self._cache = cache
        self._few_rows = few_rows
        self._is_packed = is_packed
        most = _PACKED_PROMPT_ROWS if is_packed else _PROMPT_ROWS
        self._most_rows = MOST_FEW_ROWS if few_rows else most

    def over(self, run: Pass) -> CompiledPasses:
        """Return passes like these through a function compiled from a part of the model."""
        return CompiledPasses(
            run, self._cache, self._device, few_rows=self._few_rows, is_packed=self._is_packed
        )

    def run(self, works: Sequence[Work], layers: Sequence[int] = ()) -> None:
        """Prompts by themselves, so that drafts never change their bits; then all the rest."""
        rest = []
        for work in works:
            is_long = work.num_pending - work.done > _RAGGED_ROWS
            end = work.num_pending if is_long else work.done
            for chunk in work.chunks(work.done, end, self._most_rows):
                self._pass([chunk], layers)
            rest.append(Span(work, end, len(work.tokens)))
        for part in _cut(rest, self._most_rows):
            self._pass(part, layers)

    def shaped(self, works: Sequence[Work], rows: int) -> list[Tensor]:
        spans = [Span(work, 0, rows) for work in works]
        return self._outputs(spans, [list(range(rows))] * len(works), ())[0]

    def rows(self, counts: Sequence[int]) -> int:
        return sum(counts)

    def _pass(self, spans: Sequence[Span], layers: Sequence[int]) -> None:
        kept = [list(range(span.unwanted, len(span))) for span in spans]
        logits, features = self._outputs(spans, kept, layers)
        for span, rows in zip(spans, logits, strict=True):
            if len(rows):
                span.work.logits.append(rows)
        for span, rows in zip(spans, features, strict=bool(layers)):
            span.work.features.append(rows)

    def _outputs(
        self, spans: Sequence[Span], kept: Sequence[Sequence[int]], layers: Sequence[int]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Run spans in one pass; return of each the logits of the rows asked for (by span), and
        the hidden states of all its rows if layers are given.
        """
        with self.timed():
            table = _Table(spans)
            self._cache.reserve(0, table.end)
            for span in spans:
                self._cache.touch(span.work.sequence.slot, span.work.sequence.cached + span.last)
            index = [
                first + row for first, rows in zip(table.firsts, kept, strict=True) for row in rows
            ]
            logits, *states = self._run_graph.run(
                [
                    table.ids,
                    table.positions,
                    torch.tensor(index, dtype=torch.long),
                    table.places,
                    table.branches,
                    *self._entering(spans),
                    *self._cache.tensors,
                ]
            )
        parts = torch.split(logits[0], [len(rows) for rows in kept])
        if not layers:
            return list(parts), []
        given = self._run_graph.layers
        features = side_by_side([states[given.index(layer)][0] for layer in layers])
        return list(parts), list(torch.split(features, [len(span) for span in spans]))

    def _entering(self, spans: Sequence[Span]) -> list[Tensor]:
        """Return what enters the first layer that runs [1, R, H], if it is not the model's."""
        if not self._run_graph.takes_states:
            return []
        return [torch.cat([span.entering(len(span)) for span in spans])[None]]


class _Table:
    """The rows of several spans, one below the other, as the compiled function takes them."""

    def __init__(self, spans: Sequence[Span]) -> None:
        tokens: list[int] = []
        positions: list[int] = []
        places: list[tuple[int, int, int]] = []
        branches: list[int] = []  # the nodes each row sees, as the bits of one number
        self.firsts: list[int] = []
        for span in spans:
            work = span.work
            slot, cached = work.sequence.slot, work.sequence.cached
            base = cached + work.num_pending
            self.firsts.append(len(tokens))
            tokens += work.tokens[span.first : span.last]
            positions += work.positions[span.first : span.last]
            for row in range(span.first, span.last):
                node = row - work.num_pending
                if work.lineage is None or node < 0:
                    places.append((slot, cached + row, cached + row + 1))
                    branches.append(0)
                else:
                    places.append((slot, cached + row, base))
                    branches.append(sum(1 << seen for seen in work.lineage[node]))
        self.end = max(place for _, place, _ in places) + 1
        self.ids = torch.tensor([tokens])
        self.positions = torch.tensor([positions])
        self.places = torch.tensor(places)
        self.branches = bit_words(branches)


def _cut(spans: Sequence[Span], most: int) -> Iterator[list[Span]]:
    """Share spans out over passes of at most so many rows, in the order of each sequence's rows."""
    part: list[Span] = []
    room = most
    for span in spans:
        first = span.first
        while first < span.last:
            last = min(span.last, first + room)
            part.append(Span(span.work, first, last))
            room -= last - first
            first = last
            if room == 0:
                yield part
                part, room = [], most
    if part:
        yield part
