"""Trained heads for the tiny models: random ones, which guess badly, and drafters around them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers import PreTrainedModel

from outrider.drafters.eagle import EagleDrafter
from outrider.drafters.medusa import MedusaDrafter
from outrider.heads.config import EagleConfig, MedusaConfig
from outrider.heads.eagle import EagleHead
from outrider.heads.medusa import MedusaHeads
from outrider.targets.base import NORMED
from support.seeded import eagle_tensors, medusa_tensors
from support.tiny import VOCAB


def eagle_config(version: int = 3, **fields: Any) -> EagleConfig:
    """Return the configuration of a head for a tiny model of two layers."""
    known: dict[str, Any] = {
        "version": version,
        "hidden_size": 32,
        "target_hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": VOCAB,
        "draft_vocab_size": VOCAB if version == 1 else 24,
        "max_position_embeddings": 256,
        "feature_layers": (NORMED,) if version == 1 else (0, 1, 2),
        "owns_embeddings": False,
        "owns_head": version == 3,
        "fc_bias": version == 1,
    }
    return EagleConfig(**(known | fields))


@functools.cache
def _eagle_head(config_items: tuple[tuple[str, Any], ...], version: int) -> EagleHead:
    config = eagle_config(version, **dict(config_items))
    tensors = eagle_tensors(config)
    return EagleHead.load(config, tensors).double()


def eagle_drafter(
    model: PreTrainedModel, version: int = 3, *, width: int = 4, **fields: Any
) -> EagleDrafter:
    """Return a drafter with a random head in float64 for a tiny model."""
    output_layer: Any = model.get_output_embeddings  # untyped there
    return EagleDrafter(
        _eagle_head(tuple(fields.items()), version),
        embeddings=model.get_input_embeddings(),
        output_layer=output_layer(),
        width=width,
    )


def medusa_drafter(
    model: PreTrainedModel, *, width: int = 4, owns_output: bool = True, vocab_size: int = VOCAB
) -> MedusaDrafter:
    """Return a drafter with three random heads in float64 for a tiny model."""
    config = MedusaConfig(
        num_heads=3, num_layers=1, hidden_size=32, vocab_size=vocab_size, owns_output=owns_output
    )
    heads = MedusaHeads.load(config, medusa_tensors(config)).to(torch.float64)
    output_layer: Any = model.get_output_embeddings
    return MedusaDrafter(heads, output_layer=output_layer(), width=width)
