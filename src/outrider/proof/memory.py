"""A target that works out each context once and remembers what it said.

Thousands of short answers to one prompt go through the same few contexts. Remembering them leaves
drafting, verification and sampling as they are, and takes the model's time out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outrider.targets.base import Rows, ScoredRows, Target
from outrider.trees.layout import row_paths
from outrider.types import DraftTree

Context = tuple[int, ...]

_MOST_BYTES = 128 * 2**20  # of logits


@dataclass(slots=True)
class _Held:
    tokens: list[int] = field(default_factory=list)
    staged: tuple[tuple[int, ...], DraftTree] | None = None


class RememberingTarget(Target):
    """Answers for another target, which is asked for each context once."""

    preferred_rows = None

    def __init__(self, target: Target, layers: Sequence[int] = ()) -> None:
        """`layers` are all those whose hidden states anyone is going to ask for."""
        self._target = target
        self._layers = tuple(sorted(set(layers)))
        self._logits: dict[Context, Tensor] = {}
        self._features: dict[Context, Tensor] = {}
        self._held: dict[int, _Held] = {}
        self._next_handle = 0
        self.vocab_size = target.vocab_size
        self.max_positions = target.max_positions
        self.device = target.device
        self._most_rows = max(512, _MOST_BYTES // (4 * target.vocab_size))
        target.prepare(self._layers)

    def logits(self, context: Context) -> Tensor:
        """Return the logits [V] after a context."""
        if context not in self._logits:
            self._work_out([(context, [()])])
        return self._logits[context]

    # -- the contract ---------------------------------------------------------------------------

    def prepare(self, layers: Sequence[int]) -> None:
        missing = set(layers) - set(self._layers)
        if missing:
            raise ValueError(f"layers {sorted(missing)} were not announced")

    def require_room(self, sequences: int, tokens: int, rows: int, input_tokens: int = 0) -> None:
        self._target.require_room(1, tokens, rows, input_tokens)

    def open(self, max_tokens: int) -> int:
        handle = self._next_handle
        self._next_handle += 1
        self._held[handle] = _Held()
        return handle

    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        asked = []
        for part in rows:
            held = self._held[part.sequence]
            held.staged = (part.pending, part.tree)
            asked.append(((*held.tokens, *part.pending), row_paths(part.tree)))
        self._make_room(asked)
        self._work_out(asked)
        logits = tuple(
            torch.stack([self._logits[context + path] for path in paths])
            for context, paths in asked
        )
        features: tuple[Tensor, ...] = ()
        if layers:
            columns = self._columns(layers)
            features = tuple(
                torch.stack([self._features[one] for one in _read(part, context, paths)])[
                    :, columns
                ]
                for part, (context, paths) in zip(rows, asked, strict=True)
            )
        return ScoredRows(logits, 0.0, features)

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        held = self._held[sequence]
        if held.staged is None:
            raise ValueError(f"sequence {sequence} has no scored rows to commit")
        pending, tree = held.staged
        held.tokens += [*pending, *(tree.tokens[node] for node in path)]
        held.staged = None

    def cached(self, sequence: int) -> int:
        return len(self._held[sequence].tokens)

    def crop(self, sequence: int, length: int) -> None:
        held = self._held[sequence]
        del held.tokens[length:]
        held.staged = None

    def close(self, sequence: int) -> None:
        del self._held[sequence]

    # -- what is remembered ---------------------------------------------------------------------

    def _columns(self, layers: Sequence[int]) -> Tensor:
        """Return the columns of what is remembered that hold these layers, in their order."""
        width = next(iter(self._features.values())).shape[-1] // len(self._layers)
        starts = [self._layers.index(layer) * width for layer in layers]
        return torch.cat([torch.arange(start, start + width) for start in starts])

    def _make_room(self, asked: Sequence[tuple[Context, Sequence[Context]]]) -> None:
        """Forget everything rather than to grow without end; what is asked for comes back."""
        if len(self._logits) + sum(len(paths) for _, paths in asked) > self._most_rows:
            self._logits.clear()
            self._features.clear()

    def _work_out(self, asked: Iterable[tuple[Context, Sequence[Context]]]) -> None:
        """Ask the target for all rows that are not known, a pass for each context."""
        unknown: dict[Context, set[Context]] = {}
        for context, paths in asked:
            new = {path for path in paths if context + path not in self._logits}
            if new:
                unknown.setdefault(context, set()).update(new)
        for context, paths_of in unknown.items():
            tree, paths = _trie(paths_of)
            most = min(len(context) + len(tree) + 1, self.max_positions)
            handle = self._target.open_trial(most)
            try:
                scored = self._target.score([Rows(handle, context, tree)], self._layers)
            finally:
                self._target.close(handle)
            for path, row in zip(paths, scored.logits[0], strict=True):
                self._logits.setdefault(context + path, row.clone())
            if self._layers:
                read = [context[:end] for end in range(1, len(context))]
                read += [context + path for path in paths]
                for one, row in zip(read, scored.features[0], strict=True):
                    self._features.setdefault(one, row.clone())


def _read(part: Rows, context: Context, paths: Sequence[Context]) -> list[Context]:
    """Return what each row of a pass has read: its pending tokens one by one, then its nodes."""
    first = len(context) - len(part.pending)
    return [context[:end] for end in range(first + 1, len(context))] + [
        context + path for path in paths
    ]


def _trie(paths: Iterable[Context]) -> tuple[DraftTree, list[Context]]:
    """Return the tree that holds all paths, and what each row of its pass stands after."""
    wanted = {path[:end] for path in paths for end in range(1, len(path) + 1)}
    nodes = sorted(wanted, key=lambda path: (len(path), path))
    index = {(): -1} | {path: node for node, path in enumerate(nodes)}
    tree = DraftTree(tuple(path[-1] for path in nodes), tuple(index[path[:-1]] for path in nodes))
    return tree, [(), *nodes]
