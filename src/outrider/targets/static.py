"""A pass of fixed shape that reads all else from tensors, so that its recording can be replayed.

A recorded pass repeats operations, not the Python around them. So which tokens there are, where
they are stored and what they may see stand in tensors that are overwritten before each run; only
the shape is part of the recording. Rows and sequences that just fill the shape up are stored in
one token of the cache that no sequence uses, and see one key, so that nothing in them overflows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.targets.attention import AttentionSwitch, WrittenLayers
from outrider.targets.cache import KVCache
from outrider.targets.features import FeatureTap
from outrider.targets.padded import folded_attention
from outrider.targets.work import Work

MOST_WIDE = 32
"""Rows a sequence has at most: which of them a row sees are the bits of one whole number."""


@dataclass(frozen=True, slots=True)
class PassShape:
    """`batch` sequences in neighbouring slots from `first` on, `width` rows each, `bucket` keys."""

    first: int
    batch: int
    width: int
    bucket: int


@dataclass(frozen=True, slots=True, eq=False)
class StaticRows:
    """What differs from run to run of one shape; each [B, W] but for `starts` [B, 1]."""

    ids: Tensor
    positions: Tensor
    slots: Tensor
    """Where each row is stored: its slot, counted from the first of the shape, and its token."""
    tokens: Tensor
    sights: Tensor
    """The rows of the same sequence that each row sees, row r as bit r."""
    starts: Tensor
    """Tokens stored before the pass; a row sees them all."""


class StaticInputs:
    """The tensors of one shape, filled by a single copy to the device."""

    def __init__(self, shape: PassShape, device: torch.device) -> None:
        self._shape = shape
        rows = shape.batch * shape.width
        size = 5 * rows + shape.batch
        # Pinned memory is read by the device while the host goes on.
        self._host = torch.zeros(size, dtype=torch.long, pin_memory=device.type == "cuda")
        self._device = torch.zeros(size, dtype=torch.long, device=device)
        parts = torch.split(self._device, [rows] * 5 + [shape.batch])
        self.rows = StaticRows(*(part.view(shape.batch, -1) for part in parts))

    def load(self, works: Sequence[Work], scratch: int) -> None:
        """Lay out works of the shape's slots; token `scratch` of the first one's slot is spare."""
        shape = self._shape
        by_slot = {work.sequence.slot: work for work in works}
        spare = works[0].sequence.slot - shape.first
        columns: list[list[int]] = [[] for _ in range(5)]
        starts = []
        for slot in range(shape.first, shape.first + shape.batch):
            work = by_slot.get(slot)
            own = None if work is None else _columns(work, slot - shape.first)
            # A row that only fills up stands where the sequence's first row does, and sees it.
            fill = (own[0][0], own[1][0], spare, scratch, 1) if own else (0, 0, spare, scratch, 1)
            for column, values, filling in zip(columns, own or [[]] * 5, fill, strict=True):
                column += values
                column += [filling] * (shape.width - len(values))
            starts.append(work.sequence.cached if work else 0)
        self._host.copy_(torch.tensor([*itertools.chain(*columns), *starts]))
        self._device.copy_(self._host, non_blocking=True)


def _columns(work: Work, slot: int) -> list[list[int]]:
    """Return ids, positions, slots, tokens and sights of the rows of a work stored in a slot."""
    count, start = len(work.tokens), work.sequence.cached
    if work.lineage is None:
        sights = [(2 << row) - 1 for row in range(count)]
    else:
        pending = (1 << work.num_pending) - 1
        sights = [(2 << row) - 1 for row in range(work.num_pending)]
        for nodes in work.lineage:
            sights.append(pending | sum(1 << (work.num_pending + node) for node in nodes))
    tokens = [*range(start, start + count)]
    return [work.tokens, work.positions, [slot] * count, tokens, sights]


class StaticPlan:
    """Storage and visibility of one run of a shape, worked out from its tensors on the device."""

    def __init__(
        self, rows: StaticRows, bucket: int, stored: Mapping[int, tuple[Tensor, Tensor]]
    ) -> None:
        """`stored` are the keys and values of each layer, of the shape's slots alone."""
        self._rows = rows
        self._bucket = bucket
        self._stored = stored
        self._visible, self._distance = _visibility(rows, bucket)
        self._biases: dict[tuple[int | None, int, torch.dtype], Tensor] = {}
        self._written = WrittenLayers()

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Store the new keys and values, and attend over all that each row may see."""
        self._written.add(layer)
        keys = self._store(self._stored[layer][0], key)
        values = self._store(self._stored[layer][1], value)
        bias = self._bias(window, query.shape[1] // keys.shape[1], query.dtype)
        mixed = folded_attention(query, keys, values, bias, scale, softcap)
        return mixed.transpose(1, 2).contiguous()

    def _store(self, part: Tensor, new: Tensor) -> Tensor:
        """Put rows [B, heads, W, width] in their places; return a view of the keys to be read."""
        part[self._rows.slots, :, self._rows.tokens] = new.transpose(1, 2)
        return part[:, :, : self._bucket]

    def _bias(self, window: int | None, groups: int, dtype: torch.dtype) -> Tensor:
        """Return the additive mask [B, 1, groups * W, bucket]: 0 to look, -inf not to."""
        key = (window, groups, dtype)
        if key not in self._biases:
            visible = self._visible
            if window is not None:
                visible = visible & (self._distance < window)
            bias = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
            bias.masked_fill_(~visible, float("-inf"))
            self._biases[key] = bias.repeat(1, groups, 1)[:, None]
        return self._biases[key]


def _visibility(rows: StaticRows, bucket: int) -> tuple[Tensor, Tensor]:
    """Return which keys each row sees, and how many positions back they are; [B, W, bucket]."""
    width = rows.ids.shape[1]
    stored = torch.arange(bucket, device=rows.starts.device)
    offset = stored - rows.starts
    row = offset.clamp(0, width - 1)
    is_new = (offset >= 0) & (offset < width)
    bits = (rows.sights[:, :, None] >> row[:, None]) & 1
    visible = (offset < 0)[:, None] | (is_new[:, None] & (bits == 1))
    # A node of a tree is stored behind its siblings, but stands right after its parent.
    key_positions = torch.where(is_new, rows.positions.gather(1, row), stored)
    return visible, rows.positions[:, :, None] - key_positions[:, None]


Compute = Callable[
    [PreTrainedModel, StaticRows, int, Mapping[int, tuple[Tensor, Tensor]]],
    Tensor,
]
"""The signature of `compute_logits`."""


def compute_logits(
    model: PreTrainedModel,
    rows: StaticRows,
    bucket: int,
    stored: Mapping[int, tuple[Tensor, Tensor]],
) -> Tensor:
    """Return the logits [B, W, V] of the rows, which read the first `bucket` keys of each layer.

    The model's attention must be switched over. No value of the rows is looked at on the host.
    """
    logits: Tensor = model(
        input_ids=rows.ids,
        position_ids=rows.positions,
        use_cache=False,
        outrider_plan=StaticPlan(rows, bucket, stored),
    ).logits
    return logits


class StaticPass:
    """One shape of pass over a model and a cache whose layers are known."""

    def __init__(
        self,
        model: PreTrainedModel,
        switch: AttentionSwitch,
        cache: KVCache,
        shape: PassShape,
        device: torch.device,
        compute: Compute = compute_logits,
        tap: FeatureTap | None = None,
    ) -> None:
        """`compute` is `compute_logits`, or what a compiler has made of it."""
        self._tap = tap
        self._model = model
        self._switch = switch
        self._cache = cache
        self._shape = shape
        self._compute = compute
        self.inputs = StaticInputs(shape, device)

    def forward(self) -> list[Tensor]:
        """Run the rows that were loaded last.

        Returns the logits [B, W, V] of all of them, then the states [B, W, H] the tap takes.
        """
        shape = self._shape
        window = slice(shape.first, shape.first + shape.batch)
        layers = self._cache.layers
        parts = [part[window] for part in self._cache.tensors]
        stored = dict(
            zip(layers, zip(parts[: len(layers)], parts[len(layers) :], strict=True), strict=True)
        )
        with self._switch.on(), nullcontext() if self._tap is None else self._tap.on():
            logits = self._compute(self._model, self.inputs.rows, shape.bucket, stored)
        return [logits] if self._tap is None else [logits, *self._tap.states()]
