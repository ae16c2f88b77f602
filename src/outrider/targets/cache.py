"""Keys and values of committed tokens: preallocated, one slot a sequence, a length a slot.

The cache stores what it is given where it is told; which rows are committed is the target's
business. Geometry is learned from the first pass, so every attention layout fits (grouped heads,
keys and values of different widths, layers on different devices).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_GRANULE = 256  # capacity grows in steps of so many tokens


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the rows of a pass go: row w of sequence b to token `starts[b] + w` of its slot.

    The slots are neighbours: sequence b has slot `first + b`.
    """

    first: int
    starts: tuple[int, ...]
    width: int

    @property
    def end(self) -> int:
        """One past the last token position the pass writes."""
        return max(self.starts) + self.width


class KVCache:
    """Storage [slots, heads, tokens, width] for the keys and values of each layer."""

    def __init__(self) -> None:
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._tensors: list[Tensor] | None = None  # of all layers, until one is stored anew
        self._slots = 0
        self._asked = 0  # of these slots; the others are spare
        self._tokens = 0
        self._used: defaultdict[int, int] = defaultdict(int)  # tokens ever written, by slot

    @property
    def num_bytes(self) -> int:
        """Bytes held."""
        return sum(part.nbytes for layer in self._layers.values() for part in layer)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token in all layers that have written so far."""
        stored = self._slots * self._tokens
        return self.num_bytes // stored if stored else 0

    def holds(self, slots: int, tokens: int) -> bool:
        """Whether there is room for so many slots of so many tokens already."""
        return slots <= self._slots and tokens <= self._tokens

    def size_for(self, slots: int, tokens: int) -> tuple[int, int]:
        """Return the slots, and the tokens of each, that reserving so many comes to.

        All slots are as long as the longest, and none that was asked for is given up again.
        """
        if tokens <= self._tokens:
            return max(slots, self._slots), self._tokens
        return max(slots, self._asked), -(-tokens // _GRANULE) * _GRANULE

    @torch.inference_mode()
    def reserve(self, slots: int, tokens: int, *, spare_bytes: int = 0) -> None:
        """Make room for at least so many slots of at least so many tokens, keeping what is held.

        All that is held is copied, so where slots are added, half as many again come with them, as
        far as `spare_bytes` go: most are asked for one by one.
        """
        self._asked = max(self._asked, slots)
        added = slots - self._slots
        slots, tokens = self.size_for(slots, tokens)
        if added > 0 and self._layers:
            per_slot = self.bytes_per_token * tokens
            slots += min(self._slots // 2, max(0, spare_bytes // per_slot - added))
        if (slots, tokens) == (self._slots, self._tokens):
            return
        for index, (keys, values) in self._layers.items():
            self._layers[index] = (_grown(keys, slots, tokens), _grown(values, slots, tokens))
        self._slots, self._tokens = slots, tokens
        self._tensors = None

    def write(
        self, layer: int, keys: Tensor, values: Tensor, placement: Placement, bucket: int
    ) -> tuple[Tensor, Tensor]:
        """Store a pass's keys and values [B, heads, W, width]; return views of the first `bucket`
        tokens of the same slots [B, heads, bucket, width].
        """
        if layer not in self._layers:
            self._layers[layer] = (self._empty_like(keys), self._empty_like(values))
            self._tensors = None
        stored = self._layers[layer]
        last = placement.first + len(placement.starts)
        for slot in range(placement.first, last):
            self.touch(slot, placement.end)
        for part, new in zip(stored, (keys, values), strict=True):
            _scatter(part[placement.first : last], new, placement)
        return (
            stored[0][placement.first : last, :, :bucket],
            stored[1][placement.first : last, :, :bucket],
        )

    def views(self, first: int, slots: int, bucket: int) -> dict[int, tuple[Tensor, Tensor]]:
        """Return the keys and values of the first `bucket` tokens of neighbouring slots, by layer.

        [slots, heads, bucket, width] each.
        """
        rows = slice(first, first + slots)
        return {
            layer: (keys[rows, :, :bucket], values[rows, :, :bucket])
            for layer, (keys, values) in self._layers.items()
        }

    @property
    def layers(self) -> list[int]:
        """The layers that have written so far."""
        return sorted(self._layers)

    @property
    def tensors(self) -> list[Tensor]:
        """The keys of each layer in `layers`, then the values of each."""
        if self._tensors is None:
            stored = [self._layers[layer] for layer in self.layers]
            self._tensors = [keys for keys, _ in stored] + [values for _, values in stored]
        return self._tensors

    def touch(self, slot: int, end: int) -> None:
        """Take note that the tokens of a slot up to `end` are written by others."""
        self._used[slot] = max(self._used[slot], end)

    @torch.inference_mode()
    def compact(self, slot: int, start: int, rows: Sequence[int]) -> None:
        """Move the tokens at `start + rows[i]` to `start + i`, for increasing `rows`."""
        if list(rows) == list(range(len(rows))):
            return
        for layer in self._layers.values():
            for part in layer:
                index = torch.tensor(rows, device=part.device) + start
                part[slot, :, start : start + len(rows)] = part[slot].index_select(1, index)

    @torch.inference_mode()
    def clear(self, slot: int) -> None:
        """Wipe what earlier sequences left in a slot.

        Unread tokens are masked, but a NaN among them would still spoil every row: NaN * 0 is NaN.
        """
        used = self._used.pop(slot, 0)
        for layer in self._layers.values():
            for part in layer:
                part[slot, :, :used] = 0

    @torch.inference_mode()
    def move(self, source: int, destination: int, length: int) -> None:
        """Let one slot hold the first `length` tokens of another, and nothing else."""
        self.clear(destination)
        self._used[destination] = length
        for layer in self._layers.values():
            for part in layer:
                part[destination, :, :length] = part[source, :, :length]

    def _empty_like(self, new: Tensor) -> Tensor:
        _, heads, _, width = new.shape
        # Zeros, not garbage, for the same reason as in `clear`.
        return new.new_zeros(self._slots, heads, self._tokens, width)


def _grown(part: Tensor, slots: int, tokens: int) -> Tensor:
    larger = part.new_zeros(slots, part.shape[1], tokens, part.shape[3])
    held = part[:slots]  # spare slots may go
    larger[: held.shape[0], :, : held.shape[2]] = held
    return larger


def _scatter(part: Tensor, new: Tensor, placement: Placement) -> None:
    start = placement.starts[0]
    if all(other == start for other in placement.starts):
        part[:, :, start : start + placement.width] = new
        return
    device = part.device
    batch = torch.arange(len(placement.starts), device=device)[:, None]
    tokens = torch.tensor(placement.starts, device=device)[:, None]
    tokens = tokens + torch.arange(placement.width, device=device)
    part[batch, :, tokens] = new.transpose(1, 2)
