"""Sound at another rate: its spectrum, cut where the lower of the two rates ends."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_EDGE_S = 0.05
"""Silence at both ends, in seconds, so that the end of a sound is not heard before its beginning:
a spectrum is that of a sound which repeats itself."""

_ROLL_OFF = 0.95
"""The share of the band that is kept whole; above it frequencies fade, so that none rings on."""


def resampled(samples: Tensor, rate: int, wanted: int) -> Tensor:
    """Return samples [n] of one rate at another one, `ceil(n * wanted / rate)` of them."""
    if rate == wanted or not len(samples):
        return samples
    divisor = math.gcd(rate, wanted)
    up, down = wanted // divisor, rate // divisor
    count = -(-len(samples) * up // down)
    # Of whole blocks: `down` samples are as long as `up` of the new ones.
    edge = -(-math.ceil(_EDGE_S * rate) // down)
    blocks = -(-len(samples) // down) + 2 * edge
    padded = torch.zeros(blocks * down, dtype=torch.float64)
    padded[edge * down : edge * down + len(samples)] = samples
    spectrum = torch.fft.rfft(padded)
    kept = min(len(padded), blocks * up) // 2 + 1
    place = torch.linspace(0, 1, kept, dtype=torch.float64)
    fading = ((place - _ROLL_OFF) / (1 - _ROLL_OFF)).clamp(0, 1)
    faded = spectrum[:kept] * (torch.cos(fading * math.pi) + 1) / 2
    found: Tensor = torch.fft.irfft(faded, n=blocks * up) * (up / down)
    cut = found[edge * up : edge * up + count]
    return cut.to(samples.dtype)
