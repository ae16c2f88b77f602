"""Passes in plain PyTorch: whatever Transformers runs, on any device, nothing to prepare.

`EagerPasses` gives a pass just the rows it needs. `FixedPasses` makes a row's bits independent of
what else is in the pass: prompts are read in chunks of one shape, attention always has the same
number of query rows and whole buckets of keys, taken in the order of the text in whatever branch of
a tree a row is, and a pass takes only shapes that were seen to give
each row the bits it has in the reference shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.targets.cache import KVCache, Placement
from outrider.targets.calling import ModelCall
from outrider.targets.features import FeatureTap, side_by_side
from outrider.targets.layer_range import LayerRange
from outrider.targets.padded import PaddedPlan
from outrider.targets.passes import Passes
from outrider.targets.shapes import MOST_SEQUENCES, TILE, ShapedTarget, ShapeProof
from outrider.targets.work import Span, Work, adjacent

_PROMPT_ROWS = 512
_RAGGED_ROWS = 16  # pending tokens that may still share a pass with other sequences
_MOST_PADDING = 63  # rows behind the end of a sequence that are planned for in its slot


class EagerPasses(Passes):
    """Runs the model as it is, its attention replaced for the length of a pass."""

    bucket = 64  # attention reads keys in whole buckets
    _tile = 1  # query rows attention has at least
    _in_order = False  # whether branches meet their keys as the text has them

    def __init__(
        self,
        model: PreTrainedModel,
        cache: KVCache,
        device: torch.device,
        *,
        part: LayerRange | None = None,
        call: ModelCall | None = None,
    ) -> None:
        """`part`: the layers to run, all of them if None. `call`: how the model is called, that
        of a decoder-only one if None.
        """
        super().__init__(device)
        self._model = model
        self._cache = cache
        self._part = part
        self._call = ModelCall(model) if call is None else call

    def over(self, part: LayerRange) -> EagerPasses:
        """Return passes like these over a part of the model."""
        return EagerPasses(self._model, self._cache, self._device, part=part, call=self._call)

    def run(self, works: Sequence[Work], layers: Sequence[int] = ()) -> None:
        """Long prompts by themselves, chunk by chunk; all that is left in one ragged pass."""
        tap = self._tap(layers)
        spans = []
        for work in works:
            alone = len(works) == 1
            size = (len(work.tokens) if alone else work.num_pending) - work.done
            is_long = size > (_PROMPT_ROWS if alone else _RAGGED_ROWS)
            end = max(work.done, work.root) if is_long else work.done
            for chunk in work.chunks(work.done, end, _PROMPT_ROWS):
                self._pass([chunk], tap)
            spans.append(Span(work, end, len(work.tokens)))
        for run in adjacent(spans):
            self._pass([spans[i] for i in run], tap)

    def shaped(self, works: Sequence[Work], rows: int) -> list[Tensor]:
        logits = self._run_spans([Span(work, 0, rows) for work in works], rows)
        return list(logits)

    def rows(self, counts: Sequence[int]) -> int:
        return len(counts) * max(counts)

    def stored(self, tokens: int) -> int:
        return -(-(tokens + _MOST_PADDING) // self.bucket) * self.bucket

    def _tap(self, layers: Sequence[int]) -> FeatureTap | None:
        return FeatureTap(self._model, layers) if layers else None

    def _pass(
        self, spans: Sequence[Span], tap: FeatureTap | None, width: int | None = None
    ) -> None:
        """Run spans of neighbouring slots, padded to the same `width`, that of the longest if None.

        Their works get the logits that are wanted, and what `tap` takes.
        """
        width = width or max(map(len, spans))
        keep = _kept(spans, width)
        logits = self._run_spans(spans, width, keep, tap)
        for span, rows in zip(spans, logits, strict=True):
            wanted = len(span) - span.unwanted
            if wanted:
                last = len(span) if keep is None else len(rows)
                span.work.logits.append(rows[last - wanted : last])
        if tap is not None:
            for span, states in zip(spans, side_by_side(tap.states()), strict=True):
                span.work.features.append(states[: len(span)])

    def _run_spans(
        self,
        spans: Sequence[Span],
        width: int,
        keep: int | None = None,
        tap: FeatureTap | None = None,
    ) -> Tensor:
        """Return the logits [B, width, V] of spans, or those of their last `keep` rows."""
        placement = Placement(
            first=spans[0].work.sequence.slot,
            starts=tuple(span.start for span in spans),
            width=width,
        )
        bucket = -(-placement.end // self.bucket) * self.bucket
        self._cache.reserve(0, bucket)
        positions = [span.padded(span.work.positions, width) for span in spans]
        position_ids = torch.tensor(positions, device=self._device)
        plan = self._call.plan(
            self._cache,
            placement,
            bucket,
            position_ids,
            [span.branches() for span in spans],
            tile=self._tile,
            in_order=self._in_order,
        )
        tokens = [span.padded(span.work.tokens, width) for span in spans]
        input_ids = torch.tensor(tokens, device=self._device)
        with nullcontext() if tap is None else tap.on():
            return self._forward(input_ids, position_ids, plan, keep, self._entering(spans, width))

    def _entering(self, spans: Sequence[Span], width: int) -> Tensor | None:
        """Return what enters the first layer that runs [B, width, H], if it is not the model's."""
        if self._part is None or self._part.first == 0:
            return None
        return torch.stack([span.entering(width) for span in spans])

    def _forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        plan: PaddedPlan,
        keep: int | None,
        entering: Tensor | None,
    ) -> Tensor:
        part = nullcontext() if self._part is None else self._part.on(entering)
        with self._call.switch.on(), part, self.timed():
            return self._call.logits(input_ids, position_ids, plan, keep)


def _kept(spans: Sequence[Span], width: int) -> int | None:
    """Return how many of the last rows need logits, None for all that there are."""
    if not any(span.work.wants_logits for span in spans):
        return 0
    wanted = len(spans[0]) - spans[0].unwanted
    is_padded = wanted > 0 and len(spans[0]) < width
    return None if len(spans) > 1 or is_padded else max(1, wanted)


class FixedPasses(EagerPasses):
    """Runs the model in shapes of equal bits only (`numerics="invariant"`)."""

    preferred_rows = TILE
    bucket = 512
    _tile = TILE
    _in_order = True
    _prompt_rows = 64

    def __init__(
        self,
        model: PreTrainedModel,
        cache: KVCache,
        device: torch.device,
        target: ShapedTarget,
        *,
        part: LayerRange | None = None,
        proof: ShapeProof | None = None,
        call: ModelCall | None = None,
    ) -> None:
        """`target`, which these passes belong to, is where shapes are tried.

        What is proven of all layers, for their products and their attention, holds for a `part`.
        """
        super().__init__(model, cache, device, part=part, call=call)
        self._target = target
        self._proof = ShapeProof() if proof is None else proof

    def over(self, part: LayerRange) -> FixedPasses:
        return FixedPasses(
            self._model,
            self._cache,
            self._device,
            self._target,
            part=part,
            proof=self._proof,
            call=self._call,
        )

    def run(self, works: Sequence[Work], layers: Sequence[int] = ()) -> None:
        """Prompts in chunks of one shape, then roots and nodes in shapes of proven equal bits."""
        tap = self._tap(layers)
        chunked = []
        for work in works:
            for chunk in work.chunks(work.done, work.root, self._prompt_rows):
                self._pass([chunk], tap, self._prompt_rows)
            first = max(work.done, work.root)
            chunked.append(list(work.chunks(first, len(work.tokens), TILE)))
        for wave in itertools.zip_longest(*chunked):
            spans = [span for span in wave if span is not None]
            for run in adjacent(spans, most=MOST_SEQUENCES):
                self._run_proven([spans[i] for i in run], tap)

    def rows(self, counts: Sequence[int]) -> int:
        return sum(-(-count // TILE) * TILE for count in counts)

    def _run_proven(self, spans: list[Span], tap: FeatureTap | None) -> None:
        """Run spans in one pass if such a shape is proven, else halve them; one always is."""
        # Powers of two keep the shapes to be proven few.
        size = 1 << (len(spans).bit_length() - 1)
        if size < len(spans):
            self._run_proven(spans[:size], tap)
            self._run_proven(spans[size:], tap)
            return
        width = self._proof.width(self._target, size, max(len(span) for span in spans))
        if width is None:
            self._run_proven(spans[: size // 2], tap)
            self._run_proven(spans[size // 2 :], tap)
            return
        self._pass(spans, tap, width)
