"""How far rounding moves logits here, and whether it explains a token that differs.

The same position is worked out by passes of several widths. The most that any logit moves is the
noise; a fork is a floating-point tie only if moves of that size, no larger, make plain decoding
itself say the other token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.sampling.noise import KeyedNoise
from outrider.sampling.params import SamplingParams
from outrider.sampling.pipeline import LogitsPipeline
from outrider.sampling.rows import SampledRows
from outrider.targets.base import Rows, Target
from outrider.types import NO_DRAFT, DraftTree, TokenIds

WAYS = ((1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (4, 1), (4, 4))
"""Sequences in a pass, and rows of each; the first way is plain decoding's own."""

_MOST_SHIFT = 1e3
_HALVINGS = 50


@dataclass(frozen=True, slots=True, eq=False)
class Rounding:
    """The logits [V] of one position as plain decoding has them, and how other passes move them."""

    logits: Tensor
    moved: float
    """The most that a logit moved in a pass of another width."""

    @property
    def noise(self) -> float:
        """How far two logits may have moved against each other."""
        return 2 * self.moved


def measure_rounding(
    target: Target,
    prompt_ids: TokenIds,
    output_ids: TokenIds,
    *,
    input_ids: TokenIds | None = None,
) -> Rounding:
    """Work out the logits after a prompt and some output by passes of several widths.

    `input_ids` are what the encoder reads, for a target that has one.
    """
    plain, *others = (
        _logits(target, prompt_ids, output_ids, input_ids, sequences, width)
        for sequences, width in WAYS
    )
    return Rounding(plain, max(most_apart(plain, other) for other in others))


def most_apart(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of two rows [V]; equal infinities do not differ."""
    apart = (one - other).abs()
    return float(torch.where(one == other, torch.zeros_like(apart), apart).max())


def _logits(
    target: Target,
    prompt_ids: TokenIds,
    output_ids: TokenIds,
    input_ids: TokenIds | None,
    sequences: int,
    width: int,
) -> Tensor:
    """Return the logits [V] in float64 after the output, read `width` tokens a pass.

    Rows to fill the last pass carry any token: the row that counts does not see them.
    """
    length = len(prompt_ids) + len(output_ids)
    handles = [target.open(min(length + width, target.max_positions)) for _ in range(sequences)]
    try:
        if input_ids is not None:
            for handle in handles:
                target.read(handle, tuple(input_ids))
        pending = tuple(prompt_ids)
        committed = len(prompt_ids)
        filled = [*output_ids, *[prompt_ids[-1]] * width]
        for start in range(0, len(output_ids) + 1, width):
            room = target.max_positions - committed
            tree = DraftTree.chain(filled[start : start + min(width - 1, room)])
            scored = target.score([Rows(handle, pending, tree) for handle in handles])
            if len(output_ids) < start + width:
                return scored.logits[0][len(output_ids) - start].double()
            for handle in handles:
                target.commit(handle, range(len(tree)))
            pending = (filled[start + width - 1],)
            committed += width
        raise AssertionError("the last pass holds the row")
    finally:
        for handle in handles:
            target.close(handle)


@dataclass(frozen=True, slots=True)
class Place:
    """A position of an answer: everything plain decoding's choice of a token there depends on."""

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    eos_token_ids: tuple[int, ...]

    def choose(self, target: Target, logits: Tensor) -> int:
        """Return the token that is chosen from logits [V] here."""
        pipeline = LogitsPipeline(
            self.params, self.prompt_ids, self.eos_token_ids, target.vocab_size, target.device
        )
        pipeline.append(self.output_ids)
        position = len(self.prompt_ids) + len(self.output_ids)
        noise = KeyedNoise(self.seed)
        return SampledRows(logits[None], NO_DRAFT, pipeline, noise, position).token(0)


def margin(target: Target, place: Place, logits: Tensor, plain: int, other: int) -> float | None:
    """Return how far logits must move against each other for `other` to be chosen, not `plain`.

    For greedy decoding without options it is the distance of the two logits. None if `plain` is
    not what is chosen from these logits, or no shift makes it `other`.
    """

    def is_other(shift: float) -> bool:
        moved = _moved(logits, shift, plain, other)
        return any(place.choose(target, one) == other for one in moved)

    if is_other(0.0):
        return 0.0
    if place.choose(target, logits) != plain or not is_other(_MOST_SHIFT):
        return None
    low, high = 0.0, _MOST_SHIFT
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_other(middle) else (middle, high)
    return 2 * high


def _moved(logits: Tensor, shift: float, plain: int, other: int) -> Iterator[Tensor]:
    """Yield logits moved by `shift` each: all in favour of `other`, and all against `plain`.

    Options cut tails off: a token may be lost because it moved, or because the others did.
    """
    for token, direction in ((other, 1.0), (plain, -1.0)):
        moved = logits - direction * shift
        moved[token] = logits[token] + direction * shift
        yield moved
