"""A target and texts to learn copying from."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from outrider.training.base import Sample
from support.tiny import random_ids, tiny_model

WORDS = 400


def target(**overrides: Any) -> PreTrainedModel:
    """Return a model whose states have, as those of trained ones, a mean and few directions."""
    shape = {"vocab_size": WORDS, "hidden_size": 128, "head_dim": 32, "num_hidden_layers": 3}
    rotary = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    model = tiny_model(dtype=torch.float32, scale=1.0, **(shape | rotary | overrides))
    random = torch.Generator().manual_seed(0)
    wide = torch.linalg.qr(torch.randn(128, 40, generator=random)).Q
    words = torch.randn(WORDS, 40, generator=random) @ wide.T * 0.1
    mean = torch.nn.functional.normalize(torch.randn(128, generator=random), dim=0) / 2
    get_input: Any = model.get_input_embeddings
    get_output: Any = model.get_output_embeddings
    with torch.no_grad():
        for layer in (get_input(), get_output()):
            layer.weight.copy_(words + mean)
    return model.requires_grad_(False)


def samples() -> list[Sample]:
    return [Sample(random_ids(60, seed, WORDS), 8) for seed in range(20)]
