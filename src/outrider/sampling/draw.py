"""Drawing tokens from scores: the highest ones, or the winners of an exponential race.

A draw comes with what it won by, which is no finite number if the scores left nothing to choose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from outrider.sampling.noise import KeyedNoise, Stream, exponential

Leader: TypeAlias = tuple[float, int, float]
"""A key, the token it belongs to, and the probability of that token."""

Finder: TypeAlias = Callable[[Tensor, int], tuple[Tensor, Tensor, Tensor]]
"""From keys [R, D] and a count: of each row so many of the highest, in falling order (what is no
number comes first), their columns, and what a softmax of the row gives them; all [R, count]."""


def race_keys(
    scores: Tensor,
    noise: KeyedNoise,
    stream: Stream,
    positions: Sequence[int],
    *,
    index: int = 0,
    ids: Tensor | None = None,
    vocab_size: int | None = None,
) -> Tensor:
    """Return keys [R, V] whose highest entry in row r is a draw from softmax(scores[r]).

    `positions[r]` is the absolute position of row r's token. Rows at one position share its noise.
    `ids` [D]: the columns are these tokens, of `vocab_size`.
    """
    distinct = list(dict.fromkeys(positions))
    width = scores.shape[-1] if vocab_size is None else vocab_size
    arrivals = noise.race(stream, distinct, width, scores.device, index=index, ids=ids)
    # argmax p / E is argmax log p - log E: the Gumbel form of the race, safe for tiny p.
    delays = arrivals.log_()
    if 1 < len(distinct) < len(positions):
        delays = delays[[distinct.index(position) for position in positions]]
    return scores - delays


def draw_row(
    scores: Tensor, noise: KeyedNoise, stream: Stream, position: int, *, index: int = 0
) -> tuple[int, float]:
    """Draw from softmax(scores) of one row [V]; return the token and its key in the race."""
    if scores.device.type == "cpu":
        return _draw_among_candidates(scores, noise, stream, position, index)
    return highest(race_keys(scores.unsqueeze(0), noise, stream, [position], index=index)[0])


def highest(keys: Tensor) -> tuple[int, float]:
    """Return the lowest id with the highest key of one row [V], and that key; NaN is highest."""
    if keys.device.type == "cpu":
        # Several times as fast as torch's argmax, which is not vectorised.
        values = keys.detach().numpy()
        token = int(values.argmax())
        return token, float(values[token])
    best, place = keys.max(dim=-1)
    return int(place), float(best)


def fresh_keys(
    scores: Tensor, noise: KeyedNoise, stream: Stream, positions: Sequence[int], *, first_index: int
) -> Tensor:
    """Return keys [R, V] as `race_keys` does, but no two rows share noise, whatever their position.

    Row r draws with index `first_index + r`. In the order of its keys, highest first, a row's
    tokens are a sample without replacement from softmax(scores[r]) (Kool et al. 1903.06059).
    """
    keys, width = scores.clone(), scores.shape[-1]
    for row, position in enumerate(positions):
        arrivals = noise.race(stream, [position], width, keys.device, index=first_index + row)
        keys[row] -= arrivals[0].log_()
    return keys


def leaders(
    keys: Tensor,
    count: int,
    ids: Tensor | None = None,
    law: Tensor | None = None,
    find: Finder | None = None,
) -> list[list[Leader]]:
    """Return the `count` highest keys of each row [R, D], the lowest token first among equals.

    Column c stands for token `ids[c]`, or for c itself, and has probability `law[:, c]`, by default
    what a softmax of the keys gives it: `find` may do that faster than torch. Tokens with a key of
    -inf are left out; a row whose highest key is NaN or infinite has that one alone.
    """
    # One more than is wanted, so that a tie at the end is seen.
    wanted, width = min(count + 1, keys.shape[-1]), keys.shape[-1]
    if law is None:
        values, columns, chances = (find or _find)(keys, wanted)
    else:
        values, columns = keys.topk(wanted, dim=-1)
        chances = law.gather(-1, columns)
    tokens = columns if ids is None else ids[columns]
    found = [_ordered(row) for row in _rows(values, tokens, chances)]
    for r, row in enumerate(found):
        if len(row) == wanted < width and row[count - 1][0] == row[-1][0]:
            # More tokens than were looked at share a key, so a lower one may be among the rest.
            equal = (keys[r] >= row[-1][0]).nonzero().squeeze(-1)
            found[r] = _among(equal, keys[r], keys[r].softmax(-1) if law is None else law[r], ids)
    return [row[:count] for row in found]


def _find(keys: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    values, columns = keys.topk(count, dim=-1)
    return values, columns, keys.softmax(dim=-1).gather(-1, columns)


def _rows(*columns: Tensor) -> list[list[tuple[float, ...]]]:
    """Return tensors [R, count] side by side, on the host."""
    if columns[0].device.type == "cpu":
        parts = [part.tolist() for part in columns]
        return [list(zip(*row, strict=True)) for row in zip(*parts, strict=True)]
    return _rows_of_a_device(columns)


def _rows_of_a_device(columns: Sequence[Tensor]) -> list[list[tuple[float, ...]]]:
    """Return the same by one copy to the host."""
    packed = torch.stack([part.double() for part in columns], dim=-1)
    return [[tuple(one) for one in row] for row in packed.tolist()]


def _among(columns: Tensor, keys: Tensor, law: Tensor, ids: Tensor | None) -> list[Leader]:
    """Return all of some columns of one row, in order."""
    tokens = columns if ids is None else ids[columns]
    parts = (keys[columns].tolist(), tokens.tolist(), law[columns].tolist())
    return _ordered(list(zip(*parts, strict=True)))


def _ordered(row: Sequence[Sequence[float]]) -> list[Leader]:
    """Put keys, tokens and chances in order; the first is no number if the highest key is none."""
    if not math.isfinite(row[0][0]):
        row = row[:1]
    kept = [(key, int(token), chance) for key, token, chance in row if key != -math.inf]
    return sorted(kept, key=lambda leader: (-leader[0], leader[1]))


# A variable of the race lies between 2^-33 and 24 ln 2 < 16.7. So the token of the highest score s
# gets a key of at least s - ln 16.7 = s - 2.82, and a token more than 10 below it can only reach
# that with a variable below exp(2.82 - 10) < 2^-10, made of bits below 2^22.
_FAR = 10.0
_BITS_TO_WIN_FROM_FAR = 2**22


def _draw_among_candidates(
    scores: Tensor, noise: KeyedNoise, stream: Stream, position: int, index: int
) -> tuple[int, float]:
    """Draw as `race_keys` would, to the bit, without logarithms for tokens that cannot win."""
    values = scores.detach().numpy()
    best = values.max()
    if not math.isfinite(best):
        return highest(scores)
    bits = noise.bits(stream, [position], len(values), scores.device, index=index)[0].numpy()
    candidates = np.flatnonzero(
        (values >= best - _FAR) | (bits.view(np.uint32) < _BITS_TO_WIN_FROM_FAR)
    )
    arrivals = exponential(torch.from_numpy(bits[candidates]))
    token, key = highest(torch.from_numpy(values[candidates]) - arrivals.log_())
    return int(candidates[token]), key
