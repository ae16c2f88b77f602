"""Randomness as a pure function of seed, stream, position and token: no state, no generator.

Plain and speculative decoding ask for the same position's noise in different rounds and batches,
so the noise may depend on nothing else. All arithmetic up to the last logarithm is on 32-bit
integers with wraparound and gives the same bits on every device and for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache

import torch
from torch import Tensor

from outrider.errors import NumericsError


class Stream(IntEnum):
    """What a random number is for; streams are independent of one another."""

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2
    RECOVER = 3


class KeyedNoise:
    """Noise of one request: the same seed gives the same noise, for ever and everywhere."""

    __slots__ = ("_streams",)

    def __init__(self, seed: int) -> None:
        self._streams = tuple(_mix64(_mix64(seed) ^ stream) for stream in Stream)

    def race(
        self,
        stream: Stream,
        positions: Sequence[int],
        vocab_size: int,
        device: torch.device,
        *,
        index: int = 0,
        ids: Tensor | None = None,
    ) -> Tensor:
        """Return Exponential(1) variables [R, V] in float32, one row for each absolute position.

        The first to arrive when token i runs at rate p_i, `argmin(race / p)`, is a draw from p.
        A token's variable does not depend on `vocab_size`; `index` tells draws at one position
        apart. `ids` [D]: those of these tokens alone, [R, D].
        """
        return exponential(self.bits(stream, positions, vocab_size, device, index=index, ids=ids))

    def bits(
        self,
        stream: Stream,
        positions: Sequence[int],
        vocab_size: int,
        device: torch.device,
        *,
        index: int = 0,
        ids: Tensor | None = None,
    ) -> Tensor:
        """Return the 32 random bits each variable of `race` is made of, as int32 [R, V]."""
        keys = [self._key(stream, position, index) for position in positions]
        halves = torch.tensor([[_low32(key), _low32(key >> 32)] for key in keys], dtype=torch.int32)
        first, second = halves.to(device).unsqueeze(-1).unbind(1)  # [R, 1] each
        mixed = _mixed_ids(vocab_size, device)
        return _hash(mixed if ids is None else mixed[ids], first, second)

    def uniform(self, stream: Stream, position: int, index: int = 0) -> float:
        """Return a number in (0, 1), uniform with a step of 2^-53."""
        return ((_mix64(self._key(stream, position, index)) >> 11) + 0.5) * 2.0**-53

    def _key(self, stream: Stream, position: int, index: int) -> int:
        return _mix64(_mix64(self._streams[stream] ^ position) ^ index)


def exponential(bits: Tensor) -> Tensor:
    """Turn int32 random bits into Exponential(1) variables, in float32, never 0 nor infinite.

    `-log1p(-u)` keeps the full 2^-32 step near 0, where the winners among rare tokens lie. Fewer
    bits, read as unsigned, make a smaller variable; the largest is 24 ln 2.
    """
    # u = (bits + 1/2) / 2^32, shrunk by 2^-24 so that rounding cannot make it 1.
    step = 2.0**-32 * (1 - 2.0**-24)
    negative = bits.view(torch.uint32).to(torch.float32).mul_(-step).sub_(step / 2)
    return negative.log1p_().neg_()


class KeyedRandomness:
    """The random decisions of one round, for the rules that reject.

    `position` is that of the round's first new token: no two rounds of a request share it, so
    neither do they share noise.
    """

    __slots__ = ("_noise", "_position")

    def __init__(self, noise: KeyedNoise, position: int) -> None:
        self._noise = noise
        self._position = position

    def accept(self, key: int, probability: float) -> bool:
        """Return True with the given probability."""
        return self._noise.uniform(Stream.ACCEPT, self._position, key) < probability

    def draw(self, key: int, weights: Tensor) -> int:
        """Return an index drawn in proportion to `weights` [V] (not negative, not all zero)."""
        race = self._noise.race(
            Stream.RECOVER, (self._position,), weights.shape[-1], weights.device, index=key
        )
        speed, token = (weights / race[0]).max(dim=-1)
        if not 0 < float(speed) < math.inf:
            weight = float(weights[token])
            raise NumericsError(f"no token to draw at position {self._position}: weight {weight}")
        return int(token)


# Multipliers and shifts of published finalisers: splitmix64 (Steele, Lea and Flood 2014, variant 13
# of Stafford) and the 32-bit "lowbias32" (Wellons 2018).
_GOLDEN64 = 0x9E3779B97F4A7C15
_MASK64 = 2**64 - 1
_MULTIPLIERS = (0x7FEB352D, 0x846CA68B - 2**32)


def _mix64(value: int) -> int:
    """Spread a 64-bit integer over all 64 bits, one to one."""
    value = (value + _GOLDEN64) & _MASK64
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK64
    return value ^ value >> 31


def _low32(value: int) -> int:
    """Return the low 32 bits as a signed integer, which is what torch holds."""
    return ((value + 2**31) & 0xFFFFFFFF) - 2**31


@lru_cache(maxsize=16)
def _mixed_ids(vocab_size: int, device: torch.device) -> Tensor:
    """Return a scrambled 32-bit number for each token id [V], the same for every key.

    Scrambled first, the ids of two rows cannot meet as shifted copies of one another.
    """
    ids = torch.arange(vocab_size, dtype=torch.int32, device=device).add_(1)
    spare = torch.empty_like(ids)
    for multiplier in _MULTIPLIERS:
        _fold(ids, 16, spare).mul_(multiplier)
    return _fold(ids, 16, spare)


def _hash(mixed_ids: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Hash each token id [V] with each 64-bit key, given as halves [R, 1], to int32 [R, V]."""
    hashed = mixed_ids ^ first
    spare = torch.empty_like(hashed)
    hashed.mul_(_MULTIPLIERS[0])
    _fold(hashed, 15, spare).add_(second).mul_(_MULTIPLIERS[1])
    return _fold(hashed, 16, spare).mul_(_MULTIPLIERS[0])


def _fold(value: Tensor, shift: int, spare: Tensor) -> Tensor:
    """Xor the high bits onto the low ones, in place."""
    # torch shifts int32 with its sign; the mask turns that into the logical shift.
    torch.bitwise_right_shift(value, shift, out=spare)
    return value.bitwise_xor_(spare.bitwise_and_((1 << 32 - shift) - 1))
