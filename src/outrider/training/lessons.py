"""From a recipe to a lesson: the drafter as it begins, and the target as its teacher."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from outrider.checkpoints.read import load_head
from outrider.errors import OptionError
from outrider.heads.config import EagleConfig, MedusaConfig
from outrider.heads.eagle import EagleHead
from outrider.heads.medusa import MedusaHead, MedusaHeads
from outrider.targets.features import decoder_layers
from outrider.training.base import Lesson, Sample
from outrider.training.draft import DraftLesson, depth_cut
from outrider.training.eagle import Eagle1Lesson, Eagle3Lesson
from outrider.training.initial import (
    default_eagle_config,
    eagle_1_config,
    initial_eagle_head,
)
from outrider.training.medusa import MedusaLesson
from outrider.training.recipe import Recipe
from outrider.training.teacher import Teacher
from outrider.training.vocabulary import DraftVocabulary, draft_vocabulary


def build_lesson(
    recipe: Recipe,
    model: PreTrainedModel,
    samples: Sequence[Sample],
    always: Sequence[int],
    seed: int,
) -> Lesson:
    """Return the lesson of a recipe; the token ids of `always` are among those drafted.

    The target is frozen for good. Raises OptionError for a target that is too small to be cut, or
    whose weights are no floating-point numbers.
    """
    if not all(weight.is_floating_point() for weight in model.state_dict().values()):
        raise OptionError("the target's weights are quantised; train for the model they come from")
    model.requires_grad_(False)
    vocab = model.config.get_text_config(decoder=True).vocab_size
    size = min(recipe.draft_vocabulary, vocab)
    words = None if size == vocab else draft_vocabulary(samples, size, vocab, always)
    if recipe.kind == "eagle":
        return _eagle(recipe, model, words, size, seed)
    # Heads and draft models say all token ids, and are taught the most frequent.
    ids = None if words is None else words.ids.to(model.device)
    teacher = Teacher(model, (), ids)
    if recipe.kind == "medusa":
        return MedusaLesson(_medusa(recipe, model), teacher, loss=recipe.loss)
    return DraftLesson(_draft(recipe, model), teacher, loss=recipe.loss)


def _eagle(
    recipe: Recipe, model: PreTrainedModel, words: DraftVocabulary | None, size: int, seed: int
) -> Lesson:
    maps = {} if words is None else {"d2t": words.d2t, "t2d": words.t2d}
    if recipe.start is not None:
        found = load_head(recipe.start, "eagle", model.config)
        assert isinstance(found.config, EagleConfig)
        head = EagleHead.load(found.config, found.tensors).float()
    elif recipe.version == 1:
        head = initial_eagle_head(eagle_1_config(model), model, {}, seed)
    else:
        head = initial_eagle_head(default_eagle_config(model, size), model, maps, seed)
    head.to(model.device)
    layers = head.config.feature_layers
    assert layers is not None
    if head.config.version == 1:
        return Eagle1Lesson(head, Teacher(model, layers))
    teacher = Teacher(model, layers, head.target_ids)
    return Eagle3Lesson(
        head, teacher, steps=recipe.steps, loss=recipe.loss, closeness=recipe.closeness
    )


def _medusa(recipe: Recipe, model: PreTrainedModel) -> MedusaHeads:
    """Return heads that say what the target's own layer does: their blocks begin with zeros."""
    if recipe.start is not None:
        found = load_head(recipe.start, "medusa", model.config)
        assert isinstance(found.config, MedusaConfig)
        return MedusaHeads.load(found.config, found.tensors).float().to(model.device)
    text = model.config.get_text_config(decoder=True)
    config = MedusaConfig(
        num_heads=recipe.heads,
        num_layers=1,
        hidden_size=text.hidden_size,
        vocab_size=text.vocab_size,
        owns_output=False,
    )
    heads = MedusaHeads(config).float().to(model.device)
    for head in heads.heads:
        assert isinstance(head, MedusaHead)
        for parameter in head.blocks.parameters():
            torch.nn.init.zeros_(parameter)
    return heads


def _draft(recipe: Recipe, model: PreTrainedModel) -> PreTrainedModel:
    """Return a cut of the target with layers from all its depth, first and last among them."""
    depth, count = len(decoder_layers(model)), recipe.layers
    if count >= depth:
        raise OptionError(f"layers is {count}; the target has {depth}, and a draft fewer")
    last = depth - 1
    places = [last] if count == 1 else [round(i * last / (count - 1)) for i in range(count)]
    draft = depth_cut(model, places)
    module: torch.nn.Module = draft  # Transformers narrows the type of `to`
    module.to(model.device)
    return draft
