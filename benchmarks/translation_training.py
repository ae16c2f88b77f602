"""A T5-shaped target of the translation task, and drafters cut from it and taught by it.

The target is deep and thin, as a pass that decodes one token costs by its layers. A drafter begins
as the target's encoder and a few of its decoder's layers, and learns what the target gives to each
next word, not what the task wants: a drafter is as good as it agrees with its target (DistillSpec,
2310.08461).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from outrider.targets.quiet import quiet_transformers
from translation_task import Pair, build_tokenizer, sentences

DECODER_LAYERS = {"target": 12, "medium": 3, "small": 1}
_SHAPE = {"d_model": 128, "d_kv": 16, "num_heads": 8, "d_ff": 256, "num_layers": 3}
_SEEDS = {"target": 1, "medium": 2, "small": 3}
_BATCH = 32
_SORTED = 8  # batches of sentences that are put in the order of their length together
_WARM_UP = 20  # steps
_COOL_DOWN = 0.4  # of the steps


def train(name: str, folder: Path, pair: Pair, steps: int) -> str:
    """Train a model of the task unless it is there; return its path.

    A drafter needs the target in the same folder.
    """
    path = _path(name, folder, pair, steps)
    if (path / "config.json").exists():
        return str(path)
    torch.manual_seed(_SEEDS[name])
    tokenizer = build_tokenizer()
    if name == "target":
        model, teacher = _build(DECODER_LAYERS[name], len(tokenizer)), None
    else:
        load: Any = T5ForConditionalGeneration.from_pretrained
        teacher = load(_path("target", folder, pair, steps)).eval()
        model = cut(teacher, DECODER_LAYERS[name])
    _fit(model, teacher, islice(_batches(tokenizer, pair, _SEEDS[name]), steps), name, steps)
    with quiet_transformers():
        model.eval().save_pretrained(path)
        tokenizer.save_pretrained(path)
    return str(path)


def cut(teacher: Any, layers: int) -> Any:
    """Return a model that has a teacher's weights, but only so many layers in its decoder."""
    model = _build(layers, teacher.config.vocab_size)
    every = teacher.config.num_decoder_layers // layers
    weights = {
        name: weight
        for name, weight in teacher.state_dict().items()
        if not name.startswith("decoder.block.")
    }
    for layer in range(layers):
        kept = teacher.decoder.block[layer * every].state_dict()
        weights |= {f"decoder.block.{layer}.{name}": weight for name, weight in kept.items()}
    model.load_state_dict(weights)
    return model


def _path(name: str, folder: Path, pair: Pair, steps: int) -> Path:
    return folder / f"{'-'.join(pair)}-{name}-{steps}"


def _build(layers: int, vocab_size: int) -> Any:
    configure: Any = T5Config  # untyped
    return T5ForConditionalGeneration(
        configure(
            vocab_size=vocab_size,
            num_decoder_layers=layers,
            dropout_rate=0.0,
            decoder_start_token_id=0,
            **_SHAPE,
        )
    )


def _fit(
    model: Any, teacher: Any, batches: Iterator[dict[str, Any]], name: str, steps: int
) -> None:
    """Teach a model the labels, or what a teacher gives to each word that could stand there."""
    optimizers = _optimizers(model)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(
            one, lambda step: min((step + 1) / _WARM_UP, 1, (1 - step / steps) / _COOL_DOWN)
        )
        for one in optimizers
    ]
    started, losses = time.perf_counter(), 0.0
    for step, batch in enumerate(batches, 1):
        labels = batch["labels"]
        wanted = labels if teacher is None else _distributions(teacher, batch)
        is_word = labels != -100
        loss: Any = F.cross_entropy(model(**batch).logits[is_word], wanted[is_word])
        loss.backward()
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        model.zero_grad()
        losses += loss.item()
        if step % 50 == 0:
            taken = time.perf_counter() - started
            print(f"{name}: step {step}, loss {losses / 50:.3f}, {taken:.0f} s", flush=True)
            losses = 0.0


@torch.no_grad()
def _distributions(teacher: Any, batch: dict[str, Any]) -> torch.Tensor:
    wanted: torch.Tensor = teacher(**batch).logits.softmax(-1)
    return wanted


def _optimizers(model: Any) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices of layers, which learn in fewer steps by it, AdamW for the rest.

    Keller Jordan et al. 2024. Biases of distance begin near zero and have far to go until a layer
    can tell where in a sentence a word is; nothing is learnt of the order of words before.
    """
    kinds: dict[str, list[torch.nn.Parameter]] = {"matrix": [], "distance": [], "other": []}
    for name, parameter in model.named_parameters():
        is_matrix = parameter.dim() == 2 and "shared" not in name
        kind = "matrix" if is_matrix else "other"
        kinds["distance" if "relative_attention_bias" in name else kind].append(parameter)
    rest = [{"params": kinds["distance"], "lr": 0.2}, {"params": kinds["other"], "lr": 0.01}]
    return [
        torch.optim.Muon(kinds["matrix"], lr=0.02, weight_decay=0.0),
        torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def _batches(
    tokenizer: PreTrainedTokenizerFast, pair: Pair, seed: int
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches of sentences that are about as long as each other."""
    pairs = sentences(pair, seed)
    while True:
        some = sorted(islice(pairs, _SORTED * _BATCH), key=lambda both: len(both[1].split()))
        for place in torch.randperm(_SORTED).tolist():
            sources, wanted = zip(*some[place * _BATCH : (place + 1) * _BATCH], strict=True)
            read: Any = tokenizer(list(sources), padding=True, return_tensors="pt")
            labels = tokenizer(list(wanted), padding=True, return_tensors="pt")["input_ids"]
            yield {
                "input_ids": read["input_ids"],
                "attention_mask": read["attention_mask"],
                "labels": labels.masked_fill(labels == tokenizer.pad_token_id, -100),
            }
