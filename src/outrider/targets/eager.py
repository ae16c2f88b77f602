"""Passes in plain PyTorch: whatever Transformers runs, on any device, nothing to prepare.

`EagerPasses` gives a pass just the rows it needs. `FixedPasses` makes a row's bits independent of
what else is in the pass: prompts are read in chunks of one shape, attention always has the same
number of query rows and whole buckets of keys, and a pass takes only shapes that were seen to give
each row the bits it has in the reference shape.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.targets.attention import AttentionSwitch
from outrider.targets.cache import KVCache, Placement
from outrider.targets.features import FeatureTap, side_by_side
from outrider.targets.padded import PaddedPlan
from outrider.targets.passes import Passes
from outrider.targets.shapes import MOST_SEQUENCES, TILE, ShapedTarget, ShapeProof
from outrider.targets.work import Span, Work, adjacent

_PROMPT_ROWS = 512
_RAGGED_ROWS = 16  # pending tokens that may still share a pass with other sequences


class EagerPasses(Passes):
    """Runs the model as it is, its attention replaced for the length of a pass."""

    _bucket = 64  # attention reads keys in whole buckets
    _tile = 1  # query rows attention has at least

    def __init__(self, model: PreTrainedModel, cache: KVCache, device: torch.device) -> None:
        super().__init__(device)
        self._model = model
        self._cache = cache
        self._switch = AttentionSwitch(model)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    def run(self, works: Sequence[Work], layers: Sequence[int] = ()) -> None:
        """Long prompts by themselves, chunk by chunk; all that is left in one ragged pass."""
        tap = self._tap(layers)
        spans = []
        for work in works:
            alone = len(works) == 1
            size = len(work.tokens) if alone else work.num_pending
            end = work.root if size > (_PROMPT_ROWS if alone else _RAGGED_ROWS) else 0
            for chunk in work.chunks(0, end, _PROMPT_ROWS):
                self._pass([chunk], keep=1, tap=tap)
            spans.append(Span(work, end, len(work.tokens)))
        keep = 1 + len(works[0].depths) if len(works) == 1 else None
        for run in adjacent(spans):
            logits = self._pass([spans[i] for i in run], keep=keep, tap=tap)
            for i, rows in zip(run, logits, strict=True):
                works[i].logits.append(rows[-1 - len(works[i].depths) :])

    def shaped(self, works: Sequence[Work], rows: int) -> list[Tensor]:
        return self._pass([Span(work, 0, rows) for work in works], keep=None, width=rows)

    def rows(self, counts: Sequence[int]) -> int:
        return len(counts) * max(counts)

    def _tap(self, layers: Sequence[int]) -> FeatureTap | None:
        return FeatureTap(self._model, layers) if layers else None

    def _pass(
        self,
        spans: Sequence[Span],
        *,
        keep: int | None,
        width: int | None = None,
        tap: FeatureTap | None = None,
    ) -> list[Tensor]:
        """Run spans of neighbouring slots; return each one's logits [rows, V].

        `keep` asks for the last so many rows only (of a single sequence). What `tap` takes goes to
        the spans' works.
        """
        width = width or max(len(span) for span in spans)
        placement = Placement(
            first=spans[0].work.sequence.slot,
            starts=tuple(span.start for span in spans),
            width=width,
        )
        bucket = -(-placement.end // self._bucket) * self._bucket
        self._cache.reserve(0, bucket)
        positions = [span.padded(span.work.positions, width) for span in spans]
        position_ids = torch.tensor(positions, device=self._device)
        plan = PaddedPlan(
            self._cache,
            placement,
            bucket,
            position_ids,
            [span.branches() for span in spans],
            tile=self._tile,
        )
        tokens = [span.padded(span.work.tokens, width) for span in spans]
        input_ids = torch.tensor(tokens, device=self._device)
        if tap is None:
            logits = self._forward(input_ids, position_ids, plan, keep)
        else:
            with tap.on():
                logits = self._forward(input_ids, position_ids, plan, keep)
            for span, states in zip(spans, side_by_side(tap.states()), strict=True):
                span.work.features.append(states[: len(span)])
        if keep is not None:
            return [logits[0, logits.shape[1] - keep :]]
        return [logits[b, : len(span)] for b, span in enumerate(spans)]

    def _forward(
        self, input_ids: Tensor, position_ids: Tensor, plan: PaddedPlan, keep: int | None
    ) -> Tensor:
        options = {"logits_to_keep": keep} if keep is not None and self._keeps_logits else {}
        with self._switch.on(), self.timed():
            logits: Tensor = self._model(
                input_ids=input_ids,
                position_ids=position_ids,
                use_cache=False,
                outrider_plan=plan,
                **options,
            ).logits
        return logits


class FixedPasses(EagerPasses):
    """Runs the model in shapes of equal bits only (`numerics="invariant"`)."""

    preferred_rows = TILE
    _bucket = 512
    _tile = TILE
    _prompt_rows = 64

    def __init__(
        self, model: PreTrainedModel, cache: KVCache, device: torch.device, target: ShapedTarget
    ) -> None:
        """`target`, which these passes belong to, is where shapes are tried."""
        super().__init__(model, cache, device)
        self._target = target
        self._proof = ShapeProof()

    def run(self, works: Sequence[Work], layers: Sequence[int] = ()) -> None:
        """Prompts in chunks of one shape, then roots and nodes in shapes of proven equal bits."""
        tap = self._tap(layers)
        chunked = []
        for work in works:
            for chunk in work.chunks(0, work.root, self._prompt_rows):
                self._pass([chunk], keep=1, width=self._prompt_rows, tap=tap)
            chunked.append(list(work.chunks(work.root, len(work.tokens), TILE)))
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
        logits = self._pass(spans, keep=None, width=width, tap=tap)
        for span, rows in zip(spans, logits, strict=True):
            span.work.logits.append(rows)
