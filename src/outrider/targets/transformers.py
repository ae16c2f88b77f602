"""A Transformers decoder as a target: one pass scores the drafts of many sequences.

`numerics="fast"` gives a pass just the rows it needs. `numerics="invariant"` runs every pass in
one of two fixed shapes (a prompt chunk, a scoring pass of a single sequence) over key buckets of
one granule, so that a row's bits do not depend on what else is in the pass: a matrix product of
fixed shape gives each row the same bits whatever the other rows hold.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.errors import UnsupportedModelError
from outrider.targets.attention import AttentionSwitch, Branches, PassPlan
from outrider.targets.base import Rows, ScoredRows, Target
from outrider.targets.cache import KVCache, Placement
from outrider.targets.capabilities import require_supported
from outrider.targets.context import usable_positions
from outrider.trees.layout import ancestors, depths
from outrider.types import DraftTree, Numerics

_PROMPT_ROWS = {"fast": 512, "invariant": 64}
_SCORE_ROWS = 8  # of a scoring pass under invariant numerics
_RAGGED_ROWS = 16  # pending tokens that may still share a pass with other sequences
_BUCKET = {"fast": 64, "invariant": 512}


@dataclass(slots=True)
class _Sequence:
    slot: int
    cached: int = 0
    staged: tuple[int, int] | None = None  # pending tokens and nodes of the last pass


@dataclass(slots=True)
class _Work:
    """The rows one sequence wants scored, in storage order: pending tokens, then nodes."""

    sequence: _Sequence
    tokens: list[int]
    positions: list[int]
    num_pending: int
    tree: DraftTree
    lineage: list[list[int]] | None  # of a tree that is no chain: each node's ancestors
    depths: list[int]
    logits: list[Tensor] = field(default_factory=list)

    @classmethod
    def of(cls, sequence: _Sequence, rows: Rows) -> _Work:
        base = sequence.cached + len(rows.pending)
        levels = depths(rows.tree)
        return cls(
            sequence=sequence,
            tokens=[*rows.pending, *rows.tree.tokens],
            positions=[*range(sequence.cached, base), *(base - 1 + depth for depth in levels)],
            num_pending=len(rows.pending),
            tree=rows.tree,
            lineage=None if rows.tree.is_chain else ancestors(rows.tree),
            depths=levels,
        )

    def branches(self, first: int, last: int) -> Branches | None:
        """Describe the tree to the rows `first` to `last`, or nothing if causal order says it."""
        if self.lineage is None:
            return None
        seen = [
            (row - first, self.lineage[row - self.num_pending])
            for row in range(max(first, self.num_pending), last)
        ]
        return Branches(self.sequence.cached + self.num_pending, self.depths, seen)


class TransformersTarget(Target):
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
        self.preferred_rows = _SCORE_ROWS if numerics == "invariant" else None
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._switch = AttentionSwitch(model)
        self._cache = KVCache()
        self._sequences: dict[int, _Sequence] = {}
        self._next_handle = 0
        self._seconds = 0.0
        self.vocab_size = self._probe()

    # -- the contract ---------------------------------------------------------------------------

    def open(self, max_tokens: int) -> int:
        handle = self._next_handle
        self._next_handle += 1
        slot = len(self._sequences)
        self._cache.reserve(slot + 1, max_tokens)
        self._sequences[handle] = _Sequence(slot)
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
        works = [_Work.of(self._sequences[part.sequence], part) for part in rows]
        with torch.inference_mode():
            if self.numerics == "invariant":
                for work in works:
                    self._run_fixed(work)
            else:
                self._run_ragged(works)
        for work in works:
            work.sequence.staged = (work.num_pending, len(work.tree))
        logits = tuple(torch.cat(w.logits) if len(w.logits) > 1 else w.logits[0] for w in works)
        return ScoredRows(logits, self._seconds)

    # -- passes ---------------------------------------------------------------------------------

    def _run_ragged(self, works: list[_Work]) -> None:
        """Long prompts by themselves, chunk by chunk; all that is left in one ragged pass."""
        prompt_rows = _PROMPT_ROWS["fast"]
        firsts = []
        for work in works:
            alone = len(works) == 1
            size = len(work.tokens) if alone else work.num_pending
            end = work.num_pending - 1 if size > (prompt_rows if alone else _RAGGED_ROWS) else 0
            for first in range(0, end, prompt_rows):
                self._pass([work], [first], [min(first + prompt_rows, end)], keep=1)
            firsts.append(end)
        ends = [len(work.tokens) for work in works]
        keep = 1 + len(works[0].tree) if len(works) == 1 else None
        order = sorted(range(len(works)), key=lambda b: works[b].sequence.slot)
        for group in _adjacent(order, [work.sequence.slot for work in works]):
            logits = self._pass(
                [works[b] for b in group],
                [firsts[b] for b in group],
                [ends[b] for b in group],
                keep=keep,
            )
            for b, part in zip(group, logits, strict=True):
                works[b].logits.append(part[-1 - len(works[b].tree) :])

    def _run_fixed(self, work: _Work) -> None:
        """A prompt in chunks of one width, then the root and the nodes in passes of another."""
        root = work.num_pending - 1
        width = _PROMPT_ROWS["invariant"]
        for first in range(0, root, width):
            self._pass([work], [first], [min(first + width, root)], keep=1, width=width)
        for first in range(root, len(work.tokens), _SCORE_ROWS):
            last = min(first + _SCORE_ROWS, len(work.tokens))
            (logits,) = self._pass([work], [first], [last], keep=None, width=_SCORE_ROWS)
            work.logits.append(logits)

    def _pass(
        self,
        works: Sequence[_Work],
        firsts: Sequence[int],
        lasts: Sequence[int],
        *,
        keep: int | None,
        width: int | None = None,
    ) -> list[Tensor]:
        """Run rows `firsts[b]` to `lasts[b]` of each sequence; return their logits [rows, V].

        `keep` asks for the last so many rows only (of a single sequence).
        """
        width = width or max(last - first for first, last in zip(firsts, lasts, strict=True))
        tokens, positions = [], []
        for work, first, last in zip(works, firsts, lasts, strict=True):
            # Rows that fill up the shape repeat the last one; nothing looks at them.
            fill = width - (last - first)
            tokens.append(work.tokens[first:last] + [work.tokens[last - 1]] * fill)
            positions.append(work.positions[first:last] + [work.positions[last - 1]] * fill)
        placement = Placement(
            first=works[0].sequence.slot,
            starts=tuple(w.sequence.cached + first for w, first in zip(works, firsts, strict=True)),
            width=width,
        )
        self._cache.reserve(len(self._sequences), placement.end)
        bucket = -(-placement.end // _BUCKET[self.numerics]) * _BUCKET[self.numerics]
        self._cache.reserve(len(self._sequences), bucket)
        position_ids = torch.tensor(positions, device=self.device)
        branches = [
            work.branches(first, last)
            for work, first, last in zip(works, firsts, lasts, strict=True)
        ]
        plan = PassPlan(self._cache, placement, bucket, position_ids, branches)
        logits = self._forward(torch.tensor(tokens, device=self.device), position_ids, plan, keep)
        if keep is not None:
            return [logits[0, logits.shape[1] - keep :]]
        return [logits[b, : lasts[b] - firsts[b]] for b in range(len(works))]

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
    def _probe(self) -> int:
        """Compare a pass with the model's own answer; return the width of its logits."""
        name = type(self.model).__name__
        tokens = [token % self.model.config.get_text_config().vocab_size for token in range(5, 12)]
        inputs = torch.tensor([tokens], device=self.device)
        sequence = self.open(len(tokens))
        try:
            expected = self.model(input_ids=inputs, use_cache=False).logits[0, 3:]
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
        return int(expected.shape[-1])


def _has_experts(model: PreTrainedModel) -> bool:
    config = model.config.get_text_config(decoder=True)
    return any(getattr(config, name, None) for name in ("num_experts", "num_local_experts"))


def _adjacent(order: Sequence[int], slots: Sequence[int]) -> Iterator[list[int]]:
    """Split sequences, in slot order, into runs of neighbouring slots."""
    run: list[int] = []
    for b in order:
        if run and slots[b] != slots[run[-1]] + 1:
            yield run
            run = []
        run.append(b)
    if run:
        yield run
