"""Drawing a token from scores: the highest one, or the winner of an exponential race."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from outrider.sampling.noise import KeyedNoise, Stream


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


def highest(keys: Tensor) -> tuple[int, float]:
    """Return the lowest id with the highest key of one row [V], and that key; NaN is highest."""
    if keys.device.type == "cpu":
        # Several times as fast as torch's argmax, which is not vectorised.
        values = keys.detach().numpy()
        token = int(values.argmax())
        return token, float(values[token])
    best, place = keys.max(dim=-1)
    return int(place), float(best)
