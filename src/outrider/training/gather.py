"""The first step of training: samples of what the target says, gathered in the run's folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from outrider.decoder import Decoder
from outrider.errors import OptionError
from outrider.sampling.params import SamplingParams
from outrider.training.base import Sample
from outrider.training.prompts import encode_conversations, read_prompts, read_texts
from outrider.training.recipe import SELF, TASKS, Recipe
from outrider.training.respond import holds_answers, read_answers, respond
from outrider.training.self_prompts import DEFAULT_PARAMS, write_self_prompts
from outrider.training.tasks import task_prompts

ANSWERS, PROMPTS = "answers.jsonl", "prompts.jsonl"

Say = Callable[[str], None]


def gather(decoder: Decoder, recipe: Recipe, folder: Path, seed: int, say: Say) -> list[Sample]:
    """Return what is to be learnt; answers already in the folder are not written again.

    Raises OptionError for data that cannot be used, PromptError for a prompt that cannot be
    answered.
    """
    if recipe.texts:
        tokenizer = decoder.tokenizer
        if tokenizer is None:
            raise OptionError("texts are to be learnt, but the target has no tokenizer")
        return [
            sample
            for path in recipe.files
            for sample in read_texts(path, tokenizer, max_tokens=recipe.max_tokens)
        ]
    known = [path for path in recipe.files if holds_answers(path)]
    samples = [sample for path in known for sample in read_answers(path, decoder)]
    prompts = _prompts(decoder, recipe, [str(path) for path in known], folder, seed, say)
    if not prompts:
        return samples
    params = SamplingParams(
        temperature=recipe.temperature, max_new_tokens=recipe.answer_tokens, seed=seed
    )
    respond(
        decoder,
        prompts,
        folder / ANSWERS,
        params=params,
        max_tokens=recipe.tokens,
        on_progress=lambda progress: say(f"answering prompts: {progress}"),
    )
    return samples + read_answers(folder / ANSWERS, decoder)


def _prompts(
    decoder: Decoder, recipe: Recipe, answered: Sequence[str], folder: Path, seed: int, say: Say
) -> list[tuple[int, ...]]:
    """Return the prompts of every kind of data, taken in turns so that all are early on.

    Files that are `answered` have their answers already.
    """
    kinds: list[list[tuple[int, ...]]] = []
    for name in recipe.data:
        if name in answered:
            continue
        if name == SELF:
            kinds.append(
                write_self_prompts(
                    decoder,
                    folder / PROMPTS,
                    recipe.prompts,
                    params=replace(DEFAULT_PARAMS, seed=seed),
                    on_progress=lambda count: say(f"writing prompts: {count}"),
                )
            )
        elif name == TASKS:
            texts = islice(task_prompts(seed), recipe.prompts)
            chats = [({"role": "user", "content": text},) for text in texts]
            kinds.append(encode_conversations(chats, decoder.tokenizer))
        else:
            kinds.append(encode_conversations(read_prompts(Path(name)), decoder.tokenizer))
    longest = max(map(len, kinds), default=0)
    return [kind[i] for i in range(longest) for kind in kinds if i < len(kind)]
