"""Drawing a token from scores: the highest one, or the winner of an exponential race.

A draw comes with what it won by, which is no finite number if the scores left nothing to choose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from outrider.sampling.noise import KeyedNoise, Stream, exponential


def race_keys(
    scores: Tensor, noise: KeyedNoise, stream: Stream, positions: Sequence[int], *, index: int = 0
) -> Tensor:
    """Return keys [R, V] whose highest entry in row r is a draw from softmax(scores[r]).

    `positions[r]` is the absolute position of row r's token. Rows at one position share its noise.
    """
    distinct = list(dict.fromkeys(positions))
    arrivals = noise.race(stream, distinct, scores.shape[-1], scores.device, index=index)
    if len(distinct) < len(positions):
        rows = [distinct.index(position) for position in positions]
        arrivals = arrivals[rows]
    # argmax p / E is argmax log p - log E: the Gumbel form of the race, safe for tiny p.
    return scores - arrivals.log_()


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
