"""A target's own first layers as the model that drafts, and the rows they leave for its passes.

The states that leave an early layer go through the final norm and the head: that is a draft model
which costs no memory, and whose work counts (LayerSkip, Elhoushi et al. 2404.16710, section 3.3).
Its keys and values are the target's own; its states are held, so that the pass which verifies a
draft begins where the draft left off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from outrider.errors import UnsupportedModelError
from outrider.targets.agreement import difference, most_difference
from outrider.targets.base import Rows, Target
from outrider.targets.passes import Passes
from outrider.targets.work import CachedSequence, Work
from outrider.types import DraftTree, TokenIds


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Rows of a sequence, beyond what is cached, that the first layers have run.

    Their keys and values are in the cache of those layers; `states` [rows, H] left the last.
    """

    by: EarlyExit
    tokens: tuple[int, ...]
    states: Tensor

    def first(self, count: int) -> Held:
        """Return the first rows alone."""
        return Held(self.by, self.tokens[:count], self.states[:count])


class EarlyExit:
    """The first `layer` layers of a target; `TransformersTarget.exit_at` makes one."""

    def __init__(
        self,
        layer: int,
        shallow: Passes,
        deep: Passes,
        sequences: Mapping[int, CachedSequence],
        max_positions: int,
    ) -> None:
        """`shallow` passes run the layers before `layer`, `deep` ones those from it on.

        `sequences` are those that the target has open.
        """
        self.layer = layer
        self.max_positions = max_positions
        self._shallow = shallow
        self._deep = deep
        self._sequences = sequences

    def cached(self, sequence: int) -> int:
        """Return how many tokens of the sequence the target has cached."""
        return self._sequences[sequence].cached

    def draft(self, sequences: Sequence[int], tokens: Sequence[TokenIds]) -> Tensor:
        """Return early logits [B, V] after `tokens[b]`, all that sequence b has not cached.

        Only those rows are run that the call before did not run. All are held until the target
        scores, commits or crops the sequence.
        """
        works = [
            self._to_draft(Rows(sequence, tuple(after)))
            for sequence, after in zip(sequences, tokens, strict=True)
        ]
        with torch.inference_mode():
            self._shallow.run(works, (self.layer,))
            for work in works:
                self._hold(work)
            return torch.cat([rows for work in works for rows in work.logits])

    def run(self, works: Sequence[Work], held: Sequence[Held | None]) -> float:
        """Run all rows of all works, those held through the later layers alone.

        Fills in the works' logits, and returns the seconds spent inside the model.
        """
        self._shallow.seconds = self._deep.seconds = 0.0
        parts = []
        for work, rows in zip(works, held, strict=True):
            done = 0 if rows is None else self._agreeing(work, rows)
            parts.append(work.split(done))
        self._shallow.run([part for part in parts if part.is_open], (self.layer,))
        for work, part, rows in zip(works, parts, held, strict=True):
            before = [] if rows is None else [rows.states[: part.done]]
            work.entering = torch.cat([*before, *part.features])
        self._deep.run(works)
        return self._shallow.seconds + self._deep.seconds

    def _to_draft(self, rows: Rows) -> Work:
        sequence = self._sequences[rows.sequence]
        work, held = Work.of(sequence, rows), sequence.let_go()
        if held is not None:
            # The last row is always run: its logits are what is asked for.
            work.done = min(self._agreeing(work, held), work.root)
            # The rows after that are about to be overwritten, even if the pass should fail.
            sequence.held = held.first(work.done) if work.done else None
        return work

    def _hold(self, work: Work) -> None:
        held = work.sequence.held
        before = [] if held is None else [held.states]
        states = torch.cat([*before, *work.features])
        work.sequence.held = Held(self, tuple(work.tokens), states)

    def _agreeing(self, work: Work, held: Held) -> int:
        """Return how many rows of the work are held: the same tokens, each after the one before."""
        if held.by is not self:
            return 0
        most = min(work.num_linear, len(held.tokens))
        if held.tokens[:most] == tuple(work.tokens[:most]):
            return most
        return next(row for row in range(most) if held.tokens[row] != work.tokens[row])


_PROBE = (5, 6, 7, 8, 9, 10, 11)


def require_same_rows(target: Target, early: EarlyExit, name: str, *, bits: bool) -> None:
    """Raise UnsupportedModelError if layers run apart give other logits than all in one pass.

    `bits` asks for the very same ones, not only for such as rounding may tell apart.
    """
    tokens = [token % target.vocab_size for token in _PROBE]
    whole, parts = target.open(len(tokens)), target.open(len(tokens))
    rows = Rows(parts, tuple(tokens[:2]), DraftTree.chain(tokens[2:]))
    try:
        (expected,) = target.score([replace(rows, sequence=whole)]).logits
        for count in (2, 3, 5):
            early.draft([parts], [tokens[:count]])
        (found,) = target.score([rows]).logits
    except (TypeError, ValueError, RuntimeError, KeyError, AttributeError) as error:
        raise UnsupportedModelError(
            f"{name} cannot be parted at layer {early.layer}: {error}"
        ) from error
    finally:
        target.close(parts)
        target.close(whole)
    apart = difference(found, expected)
    is_same = torch.equal(found, expected) if bits else apart <= most_difference(expected.dtype)
    if not is_same:
        raise UnsupportedModelError(
            f"{name} gives other logits when it is parted at layer {early.layer} (relative "
            f"difference {apart:.1e}): no early exit can be made there"
        )
