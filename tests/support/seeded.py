"""Tensors that follow from their name alone, so that heads can be compared without storing them.

NumPy's RandomState is frozen: the numbers are the same on every machine and in every version.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from outrider.heads.config import EagleConfig, MedusaConfig
from outrider.heads.eagle import EagleHead
from outrider.heads.medusa import MedusaHeads


def stream(name: str) -> np.random.RandomState:
    """Return the source of random numbers that belongs to a name."""
    return np.random.RandomState(zlib.crc32(name.encode()))


def normal(name: str, *shape: int) -> Tensor:
    """Return standard normal numbers in float32."""
    return torch.from_numpy(stream(name).standard_normal(shape)).float()


def weight(name: str, shape: Iterable[int]) -> Tensor:
    """Return a weight whose size suits its role, which the name tells."""
    numbers = normal(name, *shape)
    if "norm" in name:
        return 1 + numbers / 4
    if name.endswith("bias"):
        return numbers / 4
    return numbers if name.startswith("embed") else numbers / numbers.shape[-1] ** 0.5


def vocabulary_maps(drafted: int, vocab: int) -> dict[str, Tensor]:
    """Return `d2t` and `t2d` of a draft vocabulary of ids scattered over the target's."""
    ids = torch.from_numpy(np.sort(stream("d2t").permutation(vocab)[:drafted]))
    marks = torch.zeros(vocab, dtype=torch.bool)
    marks[ids] = True
    return {"d2t": ids - torch.arange(drafted), "t2d": marks}


def eagle_tensors(config: EagleConfig) -> dict[str, Tensor]:
    """Return every tensor of an EAGLE head."""
    maps = vocabulary_maps(config.draft_vocab_size, config.vocab_size)
    return {
        name: maps[name] if name in maps else weight(name, place.shape)
        for name, place in _places(EagleHead, config).items()
    }


def medusa_tensors(config: MedusaConfig) -> dict[str, Tensor]:
    """Return every tensor of a target's Medusa heads."""
    places = _places(MedusaHeads, config)
    return {name: weight(name, place.shape) for name, place in places.items()}


def _places(
    build: Callable[[Any], Module], config: EagleConfig | MedusaConfig
) -> dict[str, Tensor]:
    """Return the tensors a head would have, without numbers."""
    with torch.device("meta"):
        return build(config).state_dict()
