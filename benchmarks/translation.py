"""Leviathan's table for an encoder-decoder and two drafters, all trained here in minutes on a CPU.

Usage: python benchmarks/translation.py [FOLDER] [--steps N] [--inputs N] [--tokens N]

A T5-shaped target and two drafters of different sizes learn to translate numbers and dates in words
(`translation_task.py`, sentences without end); FOLDER keeps them (default: ./translation). Then,
for each drafter at temperature 0 and 1: alpha, the share of verified tokens that were accepted; c,
a step of the drafter over a pass of the target; the draft length that the first inputs say is best;
the speedup that predicts, and the one measured on the other inputs, the two decoders in turn. The
formula takes passes of more rows for free and knows no host work: "with rows" counts both, as
measured. Every text is compared with plain decoding's. One JSON document is the last line.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

import outrider
from outrider.engine.stats import Stats
from outrider.targets.base import Rows, Target
from outrider.targets.quiet import quiet_transformers
from outrider.types import DraftTree
from translation_task import build_tokenizer, sentences

_SEEDS = {"target": 1, "medium": 2, "small": 3, "inputs": 4}
_LONGEST = 12  # drafts
_PASSES = 30  # timed, of each shape


@dataclass(frozen=True, slots=True)
class Size:
    """The shape of a model."""

    width: int
    encoder_layers: int
    decoder_layers: int


SIZES = {"target": Size(256, 4, 8), "medium": Size(160, 2, 2), "small": Size(96, 1, 1)}


@dataclass(frozen=True, slots=True)
class Line:
    """What the table says of a drafter at a temperature."""

    drafter: str
    temperature: float
    alpha: float
    c: float
    draft_length: int
    predicted: float
    """By the formula of Leviathan et al.: c and alpha alone."""
    predicted_with_rows: float
    measured: float
    identical: int
    inputs: int


@dataclass(frozen=True, slots=True)
class Run:
    """Texts decoded, and the time of all that came after each one's first round."""

    texts: list[tuple[int, ...]]
    tokens: int
    seconds: float
    stats: Stats


# -- training -------------------------------------------------------------------------------------


def train(name: str, folder: Path, tokenizer: PreTrainedTokenizerFast, steps: int) -> str:
    """Train a model of the task unless it is there; return its path."""
    path = folder / f"{name}-{steps}"
    if (path / "config.json").exists():
        return str(path)
    size = SIZES[name]
    torch.manual_seed(_SEEDS[name])
    configure: Any = T5Config  # untyped
    model: Any = T5ForConditionalGeneration(
        configure(
            vocab_size=len(tokenizer),
            d_model=size.width,
            d_kv=32,
            num_heads=size.width // 32,
            d_ff=4 * size.width,
            num_layers=size.encoder_layers,
            num_decoder_layers=size.decoder_layers,
            dropout_rate=0.0,
            decoder_start_token_id=0,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 2e-3, total_steps=steps, pct_start=0.1
    )
    started = time.perf_counter()
    for step, batch in enumerate(islice(_batches(tokenizer, _SEEDS[name]), steps), 1):
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == steps:
            taken = time.perf_counter() - started
            print(f"{name}: step {step}, loss {loss.item():.3f}, {taken:.0f} s")
    with quiet_transformers():
        model.eval().save_pretrained(path)
        tokenizer.save_pretrained(path)
    return str(path)


def _batches(tokenizer: PreTrainedTokenizerFast, seed: int) -> Iterator[dict[str, torch.Tensor]]:
    pairs = sentences(seed)
    while True:
        sources, wanted = zip(*islice(pairs, 32), strict=True)
        read: Any = tokenizer(list(sources), padding=True, return_tensors="pt")
        labels = tokenizer(list(wanted), padding=True, return_tensors="pt")["input_ids"]
        yield {
            "input_ids": read["input_ids"],
            "attention_mask": read["attention_mask"],
            "labels": labels.masked_fill(labels == tokenizer.pad_token_id, -100),
        }


# -- measuring ------------------------------------------------------------------------------------


@torch.inference_mode()
def pass_seconds(target: Target, rows: Sequence[int]) -> dict[int, float]:
    """Return the median time of passes of so many rows, taken in turn."""
    taken: dict[int, list[float]] = {count: [] for count in rows}
    sequence = target.open_trial(64)
    target.score([Rows(sequence, tuple([*target.prompt_ids, *range(5, 25)]))])
    target.commit(sequence, ())
    for _ in range(_PASSES):
        for count in rows:
            part = Rows(sequence, (7,), DraftTree.chain([8] * (count - 1)))
            started = time.perf_counter()
            target.score([part])
            taken[count].append(time.perf_counter() - started)
    target.close(sequence)
    return {count: median(seconds) for count, seconds in taken.items()}


def run(decoders: Sequence[outrider.Decoder], inputs: Sequence[str], **options: Any) -> list[Run]:
    """Decode each input with each decoder in turn."""
    runs = [Run([], 0, 0.0, Stats()) for _ in decoders]
    for seed, text in enumerate(inputs):
        for turn in range(len(decoders)):
            which = (seed + turn) % len(decoders)
            one = _decode(decoders[which], text, seed=seed, **options)
            before = runs[which]
            before.stats.add(one.stats)
            texts = before.texts + one.texts
            tokens, seconds = before.tokens + one.tokens, before.seconds + one.seconds
            runs[which] = Run(texts, tokens, seconds, before.stats)
    return runs


def _decode(decoder: outrider.Decoder, text: str, **options: Any) -> Run:
    stream = decoder.stream(text, **options)
    ids: list[int] = []
    first, started = 0, 0.0
    for chunk in stream:
        ids += [token.id for token in chunk.tokens]
        if not started:  # the first round has the encoders' time in it
            first, started = len(ids), time.perf_counter()
    seconds = time.perf_counter() - started
    return Run([tuple(ids)], len(ids) - first, seconds, stream.result.stats)


def expected(alpha: float, length: int) -> float:
    """Return the tokens that a round is expected to bring: each is accepted alike."""
    return length + 1.0 if alpha == 1 else (1 - alpha ** (length + 1)) / (1 - alpha)


def best_length(alpha: float, c: float) -> int:
    """Return the draft length that the formula likes best."""
    return max(
        range(1, _LONGEST + 1), key=lambda length: expected(alpha, length) / (c * length + 1)
    )


def compare(
    paths: dict[str, str], drafter: str, inputs: Sequence[str], temperature: float, tokens: int
) -> Line:
    """Choose the draft length on a quarter of the inputs, and measure it on the others."""
    options = {"temperature": temperature, "max_new_tokens": tokens}
    plain = outrider.load(paths["target"], profile=False)
    spec = f"model:{paths[drafter]}"
    trial, rest = inputs[: len(inputs) // 4], inputs[len(inputs) // 4 :]
    trying = outrider.load(paths["target"], drafter=spec, max_draft=4, profile=False)
    tried = run([plain, trying], trial, **options)
    attempts = tried[1].stats
    alpha = sum(attempts.accepted_at) / max(1, sum(attempts.attempted_at))
    step_s = pass_seconds(outrider.load(paths[drafter], profile=False).engine.target, [1])[1]
    passes = pass_seconds(plain.engine.target, range(1, _LONGEST + 2))
    c = step_s / passes[1]
    length = best_length(alpha, c)
    host_s = max(0.0, tried[0].seconds / tried[0].tokens - passes[1])
    round_s = length * step_s + passes[length + 1] + host_s
    drafting = outrider.load(paths["target"], drafter=spec, max_draft=length, profile=False)
    found = run([plain, drafting], rest, **options)
    rates = [one.tokens / one.seconds for one in found]
    same = sum(one == other for one, other in zip(found[0].texts, found[1].texts, strict=True))
    return Line(
        drafter=drafter,
        temperature=temperature,
        alpha=alpha,
        c=c,
        draft_length=length,
        predicted=expected(alpha, length) / (c * length + 1),
        predicted_with_rows=expected(alpha, length) * (passes[1] + host_s) / round_s,
        measured=rates[1] / rates[0],
        identical=same,
        inputs=len(rest),
    )


def main() -> None:
    """Train what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("translation"))
    parser.add_argument("--steps", type=int, default=2000, help="of training, for each model")
    parser.add_argument("--inputs", type=int, default=100, help="sentences to translate")
    parser.add_argument("--tokens", type=int, default=64, help="most to write for each")
    asked = parser.parse_args()
    if min(asked.steps, asked.tokens) < 1 or asked.inputs < 4:
        parser.error("--steps and --tokens must be at least 1, --inputs at least 4")
    tokenizer = build_tokenizer()
    paths = {name: train(name, asked.folder, tokenizer, asked.steps) for name in SIZES}
    inputs = [source for source, _ in islice(sentences(_SEEDS["inputs"]), asked.inputs)]
    columns = ["drafter", "temperature", "alpha", "c", "length"]
    columns += ["predicted", "with rows", "measured", "identical"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    lines = []
    for drafter in ("small", "medium"):
        for temperature in (0.0, 1.0):
            line = compare(paths, drafter, inputs, temperature, asked.tokens)
            lines.append(line)
            print(
                f"| {line.drafter} | {line.temperature:g} | {line.alpha:.3f} | {line.c:.3f} "
                f"| {line.draft_length} | {line.predicted:.2f}x | {line.predicted_with_rows:.2f}x "
                f"| {line.measured:.2f}x | {line.identical} of {line.inputs} |"
            )
    print(
        json.dumps(
            {
                "sizes": {n: asdict(s) for n, s in SIZES.items()},
                "steps": asked.steps,
                "lines": [asdict(line) for line in lines],
            }
        )
    )


if __name__ == "__main__":
    main()
