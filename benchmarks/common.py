"""What the recipes share: prompts from a file, decoders by name, a drafter cut from the target."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig

import outrider
from outrider.targets.loading import load_model
from outrider.targets.quiet import quiet_transformers

DRAFTERS = ("none", "ngram", "suffix", "model")


@dataclass(frozen=True)
class Prompt:
    """One prompt of a set: its name, its kind of task, and its ids under the chat template."""

    id: str
    task: str
    ids: tuple[int, ...]


def read_prompts(path: Path, decoder: outrider.Decoder, limit: int | None = None) -> list[Prompt]:
    """Read a JSON-lines file of {"id", "task", "turns": [...]}; only first turns are used."""
    prompts = []
    for line in path.read_text(encoding="utf-8").splitlines()[:limit]:
        row = json.loads(line)
        ids = decoder.encode(row["turns"][0], chat=True)
        prompts.append(Prompt(row["id"], row["task"], ids))
    return prompts


def choose_prompts(
    prompts: Sequence[Prompt], tasks: Sequence[str] | None, per_task: int | None
) -> list[Prompt]:
    """Return the prompts of some kinds of task (None: all), the first few of each (None: all)."""
    unknown = set(tasks or ()) - {prompt.task for prompt in prompts}
    if unknown:
        raise SystemExit(f"error: no prompt is of task {', '.join(sorted(unknown))}")
    taken: Counter[str] = Counter()
    chosen = []
    for prompt in prompts:
        taken[prompt.task] += 1
        is_wanted = tasks is None or prompt.task in tasks
        if is_wanted and (per_task is None or taken[prompt.task] <= per_task):
            chosen.append(prompt)
    return chosen


def cut_model(target: str, num_layers: int, folder: Path) -> str:
    """Save the target's first layers, with its embeddings and head, as a model; return its path."""
    path = folder / f"cut-{num_layers}"
    if not (path / "config.json").exists():
        loaded = load_model(target, dtype="float32", device="cpu")
        config = AutoConfig.for_model(**loaded.model.config.to_dict())
        config.num_hidden_layers = num_layers
        cut = type(loaded.model)(config)
        kept = {k: v for k, v in loaded.model.state_dict().items() if k in cut.state_dict()}
        cut.load_state_dict(kept)
        with quiet_transformers():
            cut.save_pretrained(path)
        assert loaded.tokenizer is not None
        loaded.tokenizer.save_pretrained(path)
    return str(path)


def load_decoder(name: str, target: str, folder: Path, **options: Any) -> outrider.Decoder:
    """Load the target with a drafter of DRAFTERS; "model" is a cut of two of its layers."""
    if name == "model":
        # The cut agrees with the target rarely: two drafts a round cost less than five.
        drafter = f"model:{cut_model(target, 2, folder)}"
        return outrider.load(target, drafter=drafter, max_draft=2, **options)
    return outrider.load(target, drafter=name, **options)
