"""Lessons for a draft model: a smaller language model that learns to say what the target says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from outrider.checkpoints.base import Checkpoint
from outrider.errors import OptionError
from outrider.heads.config import DraftConfig
from outrider.heads.draft import (
    TOKEN_IDS,
    borrowed,
    build_draft,
    describe_draft,
    own_shapes,
    own_tensors,
    share,
)
from outrider.targets.features import base_model, decoder_layers, layers_name
from outrider.training.base import Batch, Lesson, Marks
from outrider.training.losses import find_grading
from outrider.training.teacher import Teacher


class DraftLesson(Lesson):
    """Distils a target into a draft model that shares its embeddings and its output layer.

    What is shared is not trained. Token t + 1 is learnt after token t, over the `teacher`'s token
    ids alone if it has any.
    """

    def __init__(self, draft: PreTrainedModel, teacher: Teacher, *, loss: str = "hybrid") -> None:
        """`draft` is what `to_be_trained` gave."""
        self.module = draft
        self.ids = teacher.ids
        self._draft = draft
        self._base: Any = base_model(draft)
        self._teacher = teacher
        self._grading = find_grading(loss)

    def marks(self, batch: Batch) -> Marks:
        lecture = self._teacher.teach(batch)
        normed = lecture.normed.flatten(0, 1)
        hidden: Tensor = self._base(input_ids=batch.ids, use_cache=False).last_hidden_state
        counts = functional.pad(batch.counts[:, 1:], (0, 1))
        rows = counts.flatten().nonzero().flatten()
        if not len(rows):
            return Marks(hidden.sum() * 0, (0.0,), (0.0,))
        answers = self._teacher.answers(normed[rows], lecture.verdicts_at(rows))
        # A draft model is of the target's kind, and does the same to its logits.
        said = self._teacher.logits(hidden.flatten(0, 1)[rows])
        logits = self._teacher.shaping(said)
        losses, alpha = self._grading(answers.p, logits)
        loss = (losses * answers.is_known).mean()
        match = (logits.max(dim=-1).indices == answers.likeliest) & answers.is_known
        return Marks(loss, (float(alpha.mean()),), (float(match.float().mean()),))

    def finished(self) -> Checkpoint:
        config = self._draft.config
        drafted = config.vocab_size if self.ids is None else len(self.ids)
        return Checkpoint(
            config=describe_draft(config, drafted),
            tensors=own_tensors(self._draft) | ({} if self.ids is None else {TOKEN_IDS: self.ids}),
        )


def to_be_trained(draft: Checkpoint, model: PreTrainedModel) -> PreTrainedModel:
    """Return a draft model in float32 that reads with a target's embeddings, and can learn.

    It holds nothing of the target, and has no output layer: a `Teacher` has that.
    """
    assert isinstance(draft.config, DraftConfig)
    own = {name: part.clone() for name, part in draft.tensors.items()}  # those of a cut are lent
    built = build_draft(draft.config, own, dtype=torch.float32, device=model.device)
    built.requires_grad_(True)
    share(built, borrowed(model.get_input_embeddings(), torch.float32), nn.Identity())
    return built


@torch.no_grad()
def depth_cut(model: PreTrainedModel, layers: Sequence[int]) -> Checkpoint:
    """Return some of the layers of a model as a draft model to begin with, which drafts all ids.

    The weights are the model's own. Raises OptionError for layers that are not there or not in
    order, and for a model that cannot be cut.
    """
    depth = len(decoder_layers(model))
    if (
        not layers
        or list(layers) != sorted(set(layers))
        or not 0 <= layers[0] <= layers[-1] < depth
    ):
        raise OptionError(f"layers are {list(layers)}; they must rise, within 0 to {depth - 1}")
    config = deepcopy(model.config.get_text_config(decoder=True))
    config.num_hidden_layers = len(layers)
    for name, value in config.to_dict().items():
        if "layer" in name and isinstance(value, list) and len(value) == depth:
            setattr(config, name, [value[layer] for layer in layers])
    described = describe_draft(config, config.vocab_size)
    tensors = _tensors_of(model, layers)
    found = {name: tuple(part.shape) for name, part in tensors.items()}
    if found != own_shapes(described):
        name = type(model).__name__
        raise OptionError(f"{name} cannot be cut: its parts are not those of a {config.model_type}")
    return Checkpoint(config=described, tensors=tensors)


def _tensors_of(model: PreTrainedModel, layers: Sequence[int]) -> Mapping[str, Tensor]:
    """Return the weights of a model that a cut keeps, by their names in the cut."""
    places = {layer: place for place, layer in enumerate(layers)}
    prefix = _prefix(model)
    kept = {}
    for name, part in own_tensors(model).items():
        if not name.startswith(prefix):
            kept[name] = part
            continue
        layer, _, rest = name.removeprefix(prefix).partition(".")
        if int(layer) in places:
            kept[f"{prefix}{places[int(layer)]}.{rest}"] = part
    return kept


def _prefix(model: PreTrainedModel) -> str:
    """Return what the names of a model's layers begin with."""
    layers = getattr(base_model(model), layers_name(model))
    for name, module in model.named_modules():
        if module is layers:
            return f"{name}."
    raise AssertionError("a model does not know its own layers")
