"""A Transformers decoder as a target: one pass scores the drafts of many sequences.

`numerics="fast"` gives a pass just the rows it needs. `numerics="invariant"` makes a row's bits
independent of what else is in the pass: prompts are read in chunks of one shape, attention always
has the same number of query rows and whole buckets of keys, and a pass takes only shapes that were
seen to give each row the bits it has in the reference shape.
"""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.errors import UnsupportedModelError
from outrider.targets.attention import AttentionSwitch, PassPlan
from outrider.targets.base import Rows, ScoredRows
from outrider.targets.cache import KVCache, Placement
from outrider.targets.capabilities import require_supported
from outrider.targets.context import usable_positions
from outrider.targets.shapes import MOST_SEQUENCES, TILE, ShapedTarget, ShapeProof
from outrider.targets.work import CachedSequence, Span, Work, adjacent
from outrider.types import DraftTree, Numerics

_PROMPT_ROWS = {"fast": 512, "invariant": 64}
_RAGGED_ROWS = 16  # pending tokens that may still share a pass with other sequences
_BUCKET = {"fast": 64, "invariant": 512}


class TransformersTarget(ShapedTarget):
    """Drives any causal language model whose attention goes through Transformers' interface.

    The model is never changed: its own attention is back in place after each pass. Before any
    work a short probe compares a pass with the model's own answer, and a model that cannot be
    driven faithfully is refused (`UnsupportedModelError`).
    """

    def __init__(self, model: PreTrainedModel, *, numerics: Numerics = "fast") -> None:
        name = type(model).__name__
        require_supported(model.config, name=name, model_class=type(model))
        if numerics == "invariant" and _has_experts(model):
            raise UnsupportedModelError(
                f"{name} routes rows to experts, so the shape of its passes depends on all rows: "
                "numerics='invariant' cannot hold, use 'fast'"
            )
        if model.training:
            raise UnsupportedModelError("the model is in training mode: call model.eval() first")
        self.model = model
        self.numerics = numerics
        self.device = next(model.get_input_embeddings().parameters()).device
        self.max_positions = usable_positions(model.config)
        self.preferred_rows = TILE if numerics == "invariant" else None
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._switch = AttentionSwitch(model)
        self._cache = KVCache()
        self._proof = ShapeProof()
        self._sequences: dict[int, CachedSequence] = {}
        self._next_handle = 0
        self._seconds = 0.0
        self._probe()

    # -- the contract ---------------------------------------------------------------------------

    def open(self, max_tokens: int) -> int:
        handle = self._next_handle
        self._next_handle += 1
        slot = len(self._sequences)
        self._cache.reserve(slot + 1, max_tokens)
        self._cache.clear(slot)
        self._sequences[handle] = CachedSequence(slot)
        return handle

    def cached(self, sequence: int) -> int:
        return self._sequences[sequence].cached

    def crop(self, sequence: int, length: int) -> None:
        state = self._sequences[sequence]
        if not 0 <= length <= state.cached:
            raise ValueError(f"cannot crop {state.cached} cached tokens to {length}")
        state.cached = length
        state.staged = None

    def close(self, sequence: int) -> None:
        closed = self._sequences.pop(sequence)
        # Slots stay dense, so that a pass over all sequences reads the cache without a copy.
        last = len(self._sequences)
        for state in self._sequences.values():
            if state.slot == last and closed.slot != last:
                self._cache.move(last, closed.slot, state.cached)
                state.slot = closed.slot

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        state = self._sequences[sequence]
        if state.staged is None:
            raise ValueError(f"sequence {sequence} has no scored rows to commit")
        num_pending, num_nodes = state.staged
        if any(not 0 <= node < num_nodes for node in path):
            raise ValueError(f"path {list(path)} leaves the {num_nodes} nodes that were scored")
        self._cache.compact(state.slot, state.cached + num_pending, path)
        state.cached += num_pending + len(path)
        state.staged = None

    def score(self, rows: Sequence[Rows]) -> ScoredRows:
        self._seconds = 0.0
        works = [Work.of(self._sequences[part.sequence], part) for part in rows]
        with torch.inference_mode():
            if self.numerics == "invariant":
                self._run_fixed(works)
            else:
                self._run_ragged(works)
        for work in works:
            work.sequence.staged = (work.num_pending, len(work.depths))
        logits = tuple(torch.cat(w.logits) if len(w.logits) > 1 else w.logits[0] for w in works)
        return ScoredRows(logits, self._seconds)

    # -- passes ---------------------------------------------------------------------------------

    def _run_ragged(self, works: Sequence[Work]) -> None:
        """Long prompts by themselves, chunk by chunk; all that is left in one ragged pass."""
        prompt_rows = _PROMPT_ROWS["fast"]
        spans = []
        for work in works:
            alone = len(works) == 1
            size = len(work.tokens) if alone else work.num_pending
            end = work.root if size > (prompt_rows if alone else _RAGGED_ROWS) else 0
            for chunk in work.chunks(0, end, prompt_rows):
                self._pass([chunk], keep=1)
            spans.append(Span(work, end, len(work.tokens)))
        keep = 1 + len(works[0].depths) if len(works) == 1 else None
        for run in adjacent(spans):
            logits = self._pass([spans[i] for i in run], keep=keep)
            for i, rows in zip(run, logits, strict=True):
                works[i].logits.append(rows[-1 - len(works[i].depths) :])

    def _run_fixed(self, works: Sequence[Work]) -> None:
        """Prompts in chunks of one shape, then roots and nodes in shapes of proven equal bits."""
        chunked = []
        for work in works:
            for chunk in work.chunks(0, work.root, _PROMPT_ROWS["invariant"]):
                self._pass([chunk], keep=1, width=_PROMPT_ROWS["invariant"])
            chunked.append(list(work.chunks(work.root, len(work.tokens), TILE)))
        for wave in itertools.zip_longest(*chunked):
            spans = [span for span in wave if span is not None]
            for run in adjacent(spans, most=MOST_SEQUENCES):
                self._run_proven([spans[i] for i in run])

    def _run_proven(self, spans: list[Span]) -> None:
        """Run spans in one pass if such a shape is proven, else halve them; one always is."""
        # Powers of two keep the shapes to be proven few.
        size = 1 << (len(spans).bit_length() - 1)
        if size < len(spans):
            self._run_proven(spans[:size])
            self._run_proven(spans[size:])
            return
        width = self._proof.width(self, size, max(len(span) for span in spans))
        if width is None:
            self._run_proven(spans[: size // 2])
            self._run_proven(spans[size // 2 :])
            return
        for span, rows in zip(spans, self._pass(spans, keep=None, width=width), strict=True):
            span.work.logits.append(rows)

    def score_shaped(self, rows: Sequence[Rows], width: int) -> list[Tensor]:
        with torch.inference_mode():
            works = [Work.of(self._sequences[part.sequence], part) for part in rows]
            found = self._pass([Span(work, 0, width) for work in works], keep=None, width=width)
        for work in works:
            work.sequence.staged = (work.num_pending, len(work.depths))
        return found

    def _pass(
        self, spans: Sequence[Span], *, keep: int | None, width: int | None = None
    ) -> list[Tensor]:
        """Run spans of neighbouring slots; return each one's logits [rows, V].

        `keep` asks for the last so many rows only (of a single sequence).
        """
        width = width or max(len(span) for span in spans)
        placement = Placement(
            first=spans[0].work.sequence.slot,
            starts=tuple(span.start for span in spans),
            width=width,
        )
        bucket = -(-placement.end // _BUCKET[self.numerics]) * _BUCKET[self.numerics]
        self._cache.reserve(len(self._sequences), bucket)
        positions = [span.padded(span.work.positions, width) for span in spans]
        position_ids = torch.tensor(positions, device=self.device)
        plan = PassPlan(
            self._cache,
            placement,
            bucket,
            position_ids,
            [span.branches() for span in spans],
            tile=TILE if self.numerics == "invariant" else 1,
        )
        tokens = [span.padded(span.work.tokens, width) for span in spans]
        logits = self._forward(torch.tensor(tokens, device=self.device), position_ids, plan, keep)
        if keep is not None:
            return [logits[0, logits.shape[1] - keep :]]
        return [logits[b, : len(span)] for b, span in enumerate(spans)]

    def _forward(
        self, input_ids: Tensor, position_ids: Tensor, plan: PassPlan, keep: int | None
    ) -> Tensor:
        options = {"logits_to_keep": keep} if keep is not None and self._keeps_logits else {}
        with self._switch.on():
            self._synchronize()
            started = time.perf_counter()
            logits: Tensor = self.model(
                input_ids=input_ids,
                position_ids=position_ids,
                use_cache=False,
                outrider_plan=plan,
                **options,
            ).logits
            self._synchronize()
            self._seconds += time.perf_counter() - started
        return logits

    def _synchronize(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)

    # -- the probe ------------------------------------------------------------------------------

    @torch.inference_mode()
    def _probe(self) -> None:
        """Compare a pass with the model's own answer, and learn the width of its logits."""
        name = type(self.model).__name__
        tokens = [token % self.model.config.get_text_config().vocab_size for token in range(5, 12)]
        inputs = torch.tensor([tokens], device=self.device)
        sequence = self.open(len(tokens))
        try:
            expected = self.model(input_ids=inputs, use_cache=False).logits[0, 3:]
            self.vocab_size = int(expected.shape[-1])
            self.score([Rows(sequence, tuple(tokens[:3]))])
            self.commit(sequence, ())
            rows = Rows(sequence, (tokens[3],), DraftTree.chain(tokens[4:]))
            (found,) = self.score([rows]).logits
        except (TypeError, ValueError, RuntimeError, KeyError, AttributeError) as error:
            raise UnsupportedModelError(f"{name} cannot be driven: {error}") from error
        finally:
            self.close(sequence)
        difference = (found.double() - expected.double()).norm() / expected.double().norm()
        tolerance = 1e-3 if expected.dtype in (torch.float32, torch.float64) else 0.2
        if not difference <= tolerance:
            raise UnsupportedModelError(
                f"{name} gives other logits through outrider's cache than by itself "
                f"(relative difference {float(difference):.1e}): its attention "
                "has a feature not known"
            )


def _has_experts(model: PreTrainedModel) -> bool:
    config = model.config.get_text_config(decoder=True)
    return any(getattr(config, name, None) for name in ("num_experts", "num_local_experts"))
