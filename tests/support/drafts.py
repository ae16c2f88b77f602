"""Draft models that share a tiny target's embeddings and output layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedModel

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.write import write_checkpoint
from outrider.heads.config import DraftConfig
from outrider.heads.draft import TOKEN_IDS
from outrider.targets.features import decoder_layers
from outrider.training.draft import depth_cut


def draft_of(
    model: PreTrainedModel,
    layers: Sequence[int] | None = None,
    ids: Sequence[int] | None = None,
    *,
    noise: float = 0.0,
) -> Checkpoint:
    """Return a cut of a model, all layers by default, with noise on its weights.

    It drafts the token ids `ids`, all by default.
    """
    places = range(len(decoder_layers(model))) if layers is None else layers
    cut = depth_cut(model, list(places))
    assert isinstance(cut.config, DraftConfig)
    generator = torch.Generator().manual_seed(1)
    tensors = {
        name: part + noise * torch.randn(part.shape, generator=generator).to(part)
        for name, part in cut.tensors.items()
    }
    if ids is None:
        return replace(cut, tensors=tensors)
    config = replace(cut.config, draft_vocab_size=len(ids))
    return replace(cut, config=config, tensors=tensors | {TOKEN_IDS: torch.tensor(ids)})


def save_draft(folder: Path, draft: Checkpoint) -> str:
    """Write a draft model to a folder, and return the spec of it."""
    write_checkpoint(draft, "native", folder)
    return f"model:{folder}"
