"""Lessons for a draft model: a smaller language model that learns to say what the target says."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from outrider.errors import OptionError
from outrider.targets.features import base_model, decoder_layers, layers_name
from outrider.training.base import Batch, Lesson, Marks
from outrider.training.losses import Loss, acceptance, find_loss
from outrider.training.teacher import Teacher


class DraftLesson(Lesson):
    """Distils a target into a draft model that shares its embeddings and its output layer.

    What is shared is not trained. Token t + 1 is learnt after token t, over the `teacher`'s token
    ids alone if it has any.
    """

    def __init__(self, draft: PreTrainedModel, teacher: Teacher, *, loss: str = "hybrid") -> None:
        self.module = draft
        self._base: Any = base_model(draft)
        self._teacher = teacher
        self._loss: Loss = find_loss(loss)

    def marks(self, batch: Batch) -> Marks:
        normed = self._teacher.teach(batch).normed.flatten(0, 1)
        hidden: Tensor = self._base(input_ids=batch.ids, use_cache=False).last_hidden_state
        counts = functional.pad(batch.counts[:, 1:], (0, 1))
        rows = counts.flatten().nonzero().flatten()
        if not len(rows):
            return Marks(hidden.sum() * 0, (0.0,), (0.0,))
        answers = self._teacher.answers(normed[rows])
        logits = self._teacher.logits(hidden.flatten(0, 1)[rows])
        loss = (self._loss(answers.p, logits) * answers.is_known).mean()
        match = (logits.max(dim=-1).indices == answers.likeliest) & answers.is_known
        alpha = acceptance(answers.p, logits.detach()).mean()
        return Marks(loss, (float(alpha),), (float(match.float().mean()),))

    def finished(self) -> None:
        return None


@torch.no_grad()
def depth_cut(model: PreTrainedModel, layers: Sequence[int]) -> PreTrainedModel:
    """Return a float32 copy of a model with some of its layers alone, for a draft to begin from.

    Embeddings and output layer are the model's own weights; they, and nothing else, are frozen.
    Raises OptionError for layers that are not there or not in order.
    """
    depth = len(decoder_layers(model))
    if (
        not layers
        or list(layers) != sorted(set(layers))
        or not 0 <= layers[0] <= layers[-1] < depth
    ):
        raise OptionError(f"layers are {list(layers)}; they must rise, within 0 to {depth - 1}")
    config = deepcopy(model.config)
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[layer] for layer in layers]
    build: Any = type(model)
    draft: Any = build(config).float()
    tensors = {name: part.float() for name, part in model.state_dict().items()}
    kept = {layer: place for place, layer in enumerate(layers)}
    prefix = _prefix(model)
    renamed = {}
    for name, part in tensors.items():
        if not name.startswith(prefix):
            renamed[name] = part
            continue
        layer, _, rest = name.removeprefix(prefix).partition(".")
        if int(layer) in kept:
            renamed[f"{prefix}{kept[int(layer)]}.{rest}"] = part
    draft.load_state_dict(renamed)
    shared: list[nn.Module] = [draft.get_input_embeddings(), draft.get_output_embeddings()]
    for module in shared:
        module.requires_grad_(False)
    trained: PreTrainedModel = draft
    return trained


def _prefix(model: PreTrainedModel) -> str:
    """Return what the names of a model's layers begin with."""
    layers = getattr(base_model(model), layers_name(model))
    for name, module in model.named_modules():
        if module is layers:
            return f"{name}."
    raise AssertionError("a model does not know its own layers")
