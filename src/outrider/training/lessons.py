"""From a recipe to a lesson: the drafter as it begins, and the target as its teacher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.read import load_head
from outrider.errors import OptionError
from outrider.heads.config import EagleConfig, MedusaConfig
from outrider.heads.draft import TOKEN_IDS
from outrider.heads.eagle import EagleHead
from outrider.heads.medusa import MedusaHead, MedusaHeads
from outrider.targets.base import NORMED
from outrider.targets.features import decoder_layers
from outrider.training.base import Lesson, Sample
from outrider.training.draft import DraftLesson, depth_cut, to_be_trained
from outrider.training.eagle import Eagle1Lesson, Eagle3Lesson
from outrider.training.feature_store import FeatureStore
from outrider.training.initial import (
    default_eagle_config,
    eagle_1_config,
    initial_eagle_head,
    redrafted,
)
from outrider.training.medusa import MedusaLesson
from outrider.training.recipe import Recipe
from outrider.training.teacher import Teacher
from outrider.training.vocabulary import DraftVocabulary, draft_vocabulary

Prepare: TypeAlias = Callable[[Checkpoint, Teacher], Checkpoint]
"""What is done to a drafter before it learns from a teacher."""

_FEW = 8192  # token ids that a new drafter drafts


def build_lesson(
    recipe: Recipe,
    model: PreTrainedModel,
    samples: Sequence[Sample],
    always: Sequence[int],
    seed: int,
    files: ExitStack,
    prepare: Prepare = lambda draft, _: draft,
) -> Lesson:
    """Return the lesson of a recipe; the token ids of `always` are among those drafted.

    The target is frozen for good. What is opened is closed with `files`. Raises OptionError for a
    target that is too small to be cut, or whose weights are no floating-point numbers.
    """
    if not all(weight.is_floating_point() for weight in model.state_dict().values()):
        raise OptionError("the target's weights are quantised; train for the model they come from")
    model.requires_grad_(False)
    words = _Words(samples, model, recipe.draft_vocabulary, always)
    if recipe.kind == "eagle":
        return _eagle(recipe, model, words, seed, files, prepare)
    if recipe.kind == "draft":
        return _draft(recipe, model, words, files, prepare)
    # Medusa heads say all token ids, and are taught the most frequent.
    teacher = _teacher(recipe, model, (), _ids(words.first(), model), files)
    return MedusaLesson(_medusa(recipe, model), teacher, loss=recipe.loss)


@dataclass(frozen=True, slots=True)
class _Words:
    """Chooses the token ids that are drafted; those of `always` are among them."""

    samples: Sequence[Sample]
    model: PreTrainedModel
    wanted: int | None
    always: Sequence[int]

    def first(self) -> DraftVocabulary | None:
        """Return the ids of a new drafter; None if they are all."""
        return self._chosen(_FEW if self.wanted is None else self.wanted)

    def instead(self, known: Tensor | None) -> DraftVocabulary | None:
        """Return the ids of a drafter that drafts those that are `known`, None if they stay.

        Where there are to be more, these are among them.
        """
        size = self._vocab if known is None else len(known)
        wanted = size if self.wanted is None else min(self.wanted, self._vocab)
        if wanted == size:
            return None
        kept = [] if known is None or wanted < size else known.tolist()
        return self._chosen(wanted, kept) or DraftVocabulary.whole(self._vocab)

    def _chosen(self, size: int, kept: Sequence[int] = ()) -> DraftVocabulary | None:
        if size >= self._vocab:
            return None
        return draft_vocabulary(self.samples, size, self._vocab, [*self.always, *kept])

    @property
    def _vocab(self) -> int:
        size: int = self.model.config.get_text_config(decoder=True).vocab_size
        return size


def _ids(words: DraftVocabulary | None, model: PreTrainedModel) -> Tensor | None:
    return None if words is None else words.ids.to(model.device)


def _eagle(
    recipe: Recipe,
    model: PreTrainedModel,
    words: _Words,
    seed: int,
    files: ExitStack,
    prepare: Prepare,
) -> Lesson:
    head = _eagle_head(recipe, model, words, seed).to(model.device)
    layers = head.config.feature_layers
    assert layers is not None
    if head.config.version == 1:
        return Eagle1Lesson(head, _teacher(recipe, model, layers, None, files))
    teacher = _teacher(recipe, model, layers, head.target_ids, files)
    prepared = prepare(Checkpoint(config=head.config, tensors=head.state_dict()), teacher)
    assert isinstance(prepared.config, EagleConfig)
    return Eagle3Lesson(
        EagleHead.load(prepared.config, prepared.tensors).float().to(model.device),
        teacher,
        steps=recipe.steps,
        loss=recipe.loss,
        closeness=recipe.closeness,
    )


def _eagle_head(recipe: Recipe, model: PreTrainedModel, words: _Words, seed: int) -> EagleHead:
    """Return a head that was trained before, or a new one, in float32."""
    if recipe.start is not None:
        found = load_head(recipe.start, "eagle", model.config)
        assert isinstance(found.config, EagleConfig)
        head = EagleHead.load(found.config, found.tensors).float()
        others = words.instead(head.target_ids) if head.config.version == 3 else None
        return head if others is None else redrafted(head, model, others)
    if recipe.version == 1:
        return initial_eagle_head(eagle_1_config(model), model, {}, seed)
    chosen = words.first()
    maps = {} if chosen is None else {"d2t": chosen.d2t, "t2d": chosen.t2d}
    size = None if chosen is None else len(chosen.ids)
    return initial_eagle_head(default_eagle_config(model, size), model, maps, seed)


def _medusa(recipe: Recipe, model: PreTrainedModel) -> MedusaHeads:
    """Return heads that say what the target's own layer does, or what they learnt before.

    Blocks begin with zeros: they change nothing until they have learnt to.
    """
    found = None
    if recipe.start is not None:
        found = load_head(recipe.start, "medusa", model.config)
        assert isinstance(found.config, MedusaConfig)
        config = replace(found.config, num_layers=max(recipe.blocks, found.config.num_layers))
    else:
        text = model.config.get_text_config(decoder=True)
        config = MedusaConfig(
            num_heads=recipe.heads,
            num_layers=recipe.blocks,
            hidden_size=text.hidden_size,
            vocab_size=text.vocab_size,
            owns_output=False,
        )
    heads = MedusaHeads(config).float()
    for head in heads.heads:
        assert isinstance(head, MedusaHead)
        for parameter in head.blocks.parameters():
            torch.nn.init.zeros_(parameter)
    if found is not None:
        heads.load_state_dict(heads.state_dict() | dict(found.tensors))
    return heads.to(model.device)


def _draft(
    recipe: Recipe, model: PreTrainedModel, words: _Words, files: ExitStack, prepare: Prepare
) -> Lesson:
    """Return the lesson of a draft model that was trained before, or is a cut of the target.

    A cut has layers from all the target's depth, first and last among them.
    """
    if recipe.start is not None:
        draft = load_head(recipe.start, "draft", model.config)
        ids = draft.tensors.get(TOKEN_IDS)
        others = words.instead(ids)
        if others is not None:
            ids = None if bool(others.t2d.all()) else others.ids
        ids = None if ids is None else ids.to(model.device)
    else:
        ids = _ids(words.first(), model)
        depth, count = len(decoder_layers(model)), recipe.layers
        if count >= depth:
            raise OptionError(f"layers is {count}; the target has {depth}, and a draft fewer")
        last = depth - 1
        places = [last] if count == 1 else [round(i * last / (count - 1)) for i in range(count)]
        draft = depth_cut(model, places)
    teacher = _teacher(recipe, model, (), ids, files)
    return DraftLesson(to_be_trained(prepare(draft, teacher), model), teacher, loss=recipe.loss)


def _teacher(
    recipe: Recipe,
    model: PreTrainedModel,
    layers: Sequence[int],
    ids: Tensor | None,
    files: ExitStack,
) -> Teacher:
    """Return the target as a teacher, with the store of its states if one is asked for."""
    if recipe.features is None:
        return Teacher(model, layers, ids)
    store = FeatureStore(
        Path(recipe.features),
        {"architecture": type(model).__name__, "parameters": model.num_parameters()},
        (*layers, NORMED),
        dtype=model.dtype,
        max_bytes=int(recipe.features_gb * 1e9),
    )
    return Teacher(model, layers, ids, files.enter_context(store))
