"""A whole training run: gather, learn, write the drafter down, and say how good it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.read import load_head
from outrider.checkpoints.write import write_checkpoint
from outrider.decoder import Decoder
from outrider.drafters import build_drafter, read_head
from outrider.drafters.spec import DrafterSpec, parse_spec
from outrider.errors import OptionError
from outrider.machine import this_machine
from outrider.targets.transformers import TransformersTarget
from outrider.training.base import Lesson, Sample
from outrider.training.card import TrainingCard
from outrider.training.copying import with_copying_heads
from outrider.training.corpus import Corpus
from outrider.training.evaluate import Evaluation, evaluate, questions_from
from outrider.training.gather import Say, gather
from outrider.training.lessons import build_lesson
from outrider.training.pace import Report
from outrider.training.recipe import Recipe
from outrider.training.settings import TrainOptions
from outrider.training.teacher import Teacher
from outrider.training.trainer import Outcome, Trainer
from outrider.training.vocabulary import coverage

RUN, DRAFTER = "run", "drafter"
"""Folders of a run: what it needs to go on, and what comes out of it."""
COPYING = "copying"
"""In `RUN`: the drafter as it was when it had learnt to copy, and nothing else yet."""

_MOST_NODES = 32  # of the trees a drafter is measured with


@dataclass(frozen=True, slots=True)
class Graduate:
    """A trained drafter: where it is, how it is named to `--drafter`, and how good it is."""

    folder: Path
    spec: str
    outcome: Outcome
    evaluation: Evaluation | None


def train(
    decoder: Decoder,
    recipe: Recipe,
    options: TrainOptions,
    folder: Path,
    *,
    resume: bool = False,
    command: Sequence[str] = (),
    say: Say = lambda _: None,
    progress: Callable[[Report], None] = lambda _: None,
) -> Graduate:
    """Train a drafter for a decoder's target, in a folder that a run can be resumed from.

    Raises OptionError for what cannot be trained, or a folder that holds another run, and
    TrainingError where learning breaks down.
    """
    decoder.require_text()
    target = decoder.engine.target
    if not isinstance(target, TransformersTarget):
        raise OptionError("drafters are trained for Transformers models only")
    (folder / RUN).mkdir(parents=True, exist_ok=True)
    samples = gather(decoder, recipe, folder, options.seed, say)
    corpus = Corpus(
        samples,
        max_tokens=recipe.max_tokens,
        batch_tokens=recipe.batch,
        seed=options.seed,
        held_out=recipe.held_out,
        device=str(target.device),
    )
    held_out = list(corpus.held_out_batches()) or None
    with ExitStack() as files:
        always = decoder.eos_token_ids
        run = folder / RUN
        prepare = _Preparation(recipe, options, target.model, corpus, run, say)
        lesson = build_lesson(recipe, target.model, samples, always, options.seed, files, prepare)
        trainer = Trainer(lesson, corpus, options, run, held_out=held_out, progress=progress)
        outcome = trainer.run(resume=resume)
    spec = _write(lesson, decoder, target.model, folder / DRAFTER)
    questions = questions_from(corpus.held_out)[: recipe.questions]
    found = None
    if questions:
        say("measuring the drafter on held-out prompts")
        found = _measure(decoder, spec, target, questions)
    card = TrainingCard(
        title=recipe.title,
        spec=spec,
        target=decoder.name,
        data=_describe(recipe, samples, corpus) | _words(lesson, decoder, corpus),
        command=command,
        options=options,
        outcome=outcome,
        machine=this_machine(target.device),
        evaluation=found,
    )
    card.save(folder / DRAFTER)
    return Graduate(folder / DRAFTER, spec, outcome, found)


@dataclass(frozen=True, slots=True)
class _Preparation:
    """Makes drafters ready to learn; what took a while is kept for a resumed run."""

    recipe: Recipe
    options: TrainOptions
    model: PreTrainedModel
    corpus: Corpus
    run: Path
    say: Say

    def __call__(self, drafter: Checkpoint, teacher: Teacher) -> Checkpoint:
        if not self.recipe.copying:
            return drafter
        kept = self.run / COPYING
        if not kept.exists():
            found = with_copying_heads(
                drafter,
                self.model,
                teacher,
                self.corpus.learnt,
                seed=self.options.seed,
                autocast=self.options.autocast,
                say=self.say,
            )
            write_checkpoint(found, "native", kept, self.model.config)
        return load_head(str(kept), drafter.kind, self.model.config)


def _write(lesson: Lesson, decoder: Decoder, model: PreTrainedModel, folder: Path) -> str:
    """Write the drafter into a folder, instead of what an earlier end of the run wrote there."""
    for path in folder.glob("*"):
        path.unlink()
    checkpoint = lesson.finished()
    half = {
        name: part.to(torch.bfloat16) if part.is_floating_point() else part
        for name, part in checkpoint.tensors.items()
    }
    kept = replace(checkpoint, tensors=half).for_target(decoder.name)
    write_checkpoint(kept, "native", folder, model.config)
    return f"{kept.spec_word}:{folder}"


def _measure(
    decoder: Decoder, spec: str, target: TransformersTarget, questions: Sequence[Any]
) -> Evaluation:
    parsed: DrafterSpec = parse_spec(spec)
    drafter = build_drafter(
        parsed,
        decoder.loaded,
        target,
        head=read_head(parsed, decoder.name, target.model.config),
    )
    assert drafter is not None
    most = min(_MOST_NODES, drafter.default_max_draft)
    return evaluate(decoder.using([drafter], max_draft=most), decoder.without_drafter(), questions)


def _describe(recipe: Recipe, samples: Sequence[Sample], corpus: Corpus) -> dict[str, str | int]:
    return {
        "data": ", ".join(recipe.data),
        "samples": len(samples),
        "tokens learnt in an epoch": corpus.num_tokens,
        "samples held out": len(corpus.held_out),
        "loss": recipe.loss,
    }


def _words(lesson: Lesson, decoder: Decoder, corpus: Corpus) -> dict[str, str | int]:
    """Describe the token ids of a drafter that does not draft all of them."""
    if lesson.ids is None:
        return {}
    size = decoder.engine.target.vocab_size
    facts: dict[str, str | int] = {"token ids drafted": f"{len(lesson.ids):,} of {size:,}"}
    if corpus.held_out:
        share = coverage(corpus.held_out, lesson.ids, size)
        facts["of the tokens held out, among them"] = f"{share:.1%}"
    return facts
