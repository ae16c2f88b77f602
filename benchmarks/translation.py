"""Leviathan's table for an encoder-decoder and two drafters, all trained here in minutes on a CPU.

Usage: python benchmarks/translation.py [FOLDER] [--pair en-de] [--steps N] [--inputs N]
                                        [--identity N] [--tokens N]

A T5-shaped target learns to translate dates and numbers in words (`translation_task.py`, sentences
without end), and two drafters of different sizes learn from the target (`translation_training.py`);
FOLDER keeps them (default: ./translation). Then, for each drafter at temperature 0 and 1: alpha,
the share of verified tokens that were accepted; c, the time of a drafted token over that of one
decoded plainly; the draft length; the speedup by the formula of Leviathan et al., and the one
measured, of whole texts, encoders included, the two decoders in turn. The formula takes passes
of more rows and the work between them for free, and texts to be without end: "with rows" counts the
three, and the draft length is the best by it. Predictions are made on a quarter of the inputs, and
measured on the others. Every text is compared with plain decoding's; `--identity` compares those of
further inputs, drafted in ragged batches. One JSON document is the last line.
"""

from __future__ import annotations

import argparse
import json
import operator
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, product
from pathlib import Path
from statistics import median
from typing import Any

import torch

import outrider
from outrider.engine.stats import Stats
from outrider.targets.base import Rows, Target
from outrider.types import DraftTree
from translation_task import LANGUAGES, sentences
from translation_training import DECODER_LAYERS, train

_DRAFTERS = ("small", "medium")
_TEMPERATURES = (0.0, 1.0)
_SEEDS = {"table": 4, "identity": 5}
TRIED = 4  # tokens a draft, where the best length is not known yet
_LONGEST = 12  # drafts
_PASSES = 30  # timed, of each shape


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
    """Texts decoded one after another, and what they took."""

    texts: tuple[tuple[int, ...], ...] = ()
    seconds: float = 0.0
    draft_s: float = 0.0
    stats: Stats = field(default_factory=Stats)

    @property
    def token_s(self) -> float:
        """The time of a token."""
        return self.seconds / self.stats.tokens


@dataclass(frozen=True, slots=True)
class Trial:
    """What is known of a drafter once both decoders have written some texts."""

    alpha: float
    token_s: float
    """Of plain decoding."""
    drafted_s: float
    """Of a drafted token."""
    verified_s: float
    """Of a round of `TRIED` drafted tokens, drafting apart."""
    lengths: tuple[int, ...]
    """Of the texts."""

    @classmethod
    def of(cls, plain: Run, drafting: Run) -> Trial:
        """Sum up the runs of both decoders, the latter with drafts of `TRIED` tokens."""
        stats = drafting.stats
        return cls(
            alpha=sum(stats.accepted_at) / max(1, sum(stats.attempted_at)),
            token_s=plain.token_s,
            drafted_s=drafting.draft_s / stats.proposed,
            verified_s=(drafting.seconds - drafting.draft_s) / stats.rounds,
            lengths=tuple(map(len, plain.texts)),
        )

    @property
    def c(self) -> float:
        """The time of a drafted token over that of one decoded plainly."""
        return self.drafted_s / self.token_s

    def formula(self, length: int) -> float:
        """Return the speedup that Leviathan et al. (2211.17192, theorem 3.8) predict."""
        return expected(self.alpha, length) / (self.c * length + 1)

    def speedup(self, length: int, passes: Mapping[int, float]) -> float:
        """Predict what drafts of a length bring for texts of these lengths.

        `passes` are the times of the target's by their rows.
        """
        verified_s = self.verified_s + passes[length + 1] - passes[TRIED + 1]
        work = [expected_work(self.alpha, length, tokens) for tokens in self.lengths]
        rounds, drafted = sum(some for some, _ in work), sum(some for _, some in work)
        seconds = rounds * verified_s + drafted * self.drafted_s
        return sum(self.lengths) * self.token_s / seconds

    def best_length(self, passes: Mapping[int, float]) -> int:
        """Return the draft length of the greatest predicted speedup."""
        lengths = range(1, _LONGEST + 1)
        return max(lengths, key=lambda length: self.speedup(length, passes))


# -- predicting -----------------------------------------------------------------------------------


def expected(alpha: float, length: int) -> float:
    """Return the tokens that a round is expected to bring: each is accepted alike."""
    if alpha == 1:
        return length + 1.0
    beyond: float = alpha ** (length + 1)
    return (1 - beyond) / (1 - alpha)


def expected_work(alpha: float, length: int, tokens: int) -> tuple[float, float]:
    """Return the rounds, and the drafted tokens, that a text of so many tokens is expected to take.

    A round brings one token more than drafts were accepted. None is drafted behind the end of the
    text: the last rounds are cut short.
    """
    work = [(0.0, 0.0)]
    for left in range(1, tokens + 1):
        drafted = min(length, left)
        chances = [alpha**accepted * (1 - alpha) for accepted in range(drafted)] + [alpha**drafted]
        after = [work[max(0, left - accepted - 1)] for accepted in range(drafted + 1)]
        rounds, drafts = (
            sum(map(operator.mul, chances, counts)) for counts in zip(*after, strict=True)
        )
        work.append((1 + rounds, drafted + drafts))
    return work[tokens]


# -- measuring ------------------------------------------------------------------------------------


@torch.inference_mode()
def pass_seconds(target: Target, rows: Sequence[int]) -> dict[int, float]:
    """Return the median time of passes of so many rows, taken in turn."""
    taken: dict[int, list[float]] = {count: [] for count in rows}
    sequence = target.open_trial(64)
    target.score([Rows(sequence, tuple([*target.prompt_ids, *range(5, 15)]))])
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
    runs = [Run() for _ in decoders]
    for seed, text in enumerate(inputs):
        for turn in range(len(decoders)):
            which = (seed + turn) % len(decoders)
            started = time.perf_counter()
            found = decoders[which].generate(text, seed=seed, **options)
            seconds = time.perf_counter() - started
            before = runs[which]
            before.stats.add(found.stats)
            runs[which] = Run(
                texts=(*before.texts, found.token_ids),
                seconds=before.seconds + seconds,
                draft_s=before.draft_s + found.stats.draft_s,
                stats=before.stats,
            )
    return runs


def compare(paths: dict[str, str], name: str, inputs: Sequence[str], **options: Any) -> Line:
    """Choose the draft length on a quarter of the inputs, and measure it on the others."""
    plain, drafting = decoders(paths, name, TRIED)
    trial = Trial.of(*run([plain, drafting], inputs[: len(inputs) // 4], **options))
    passes = pass_seconds(plain.engine.target, range(2, _LONGEST + 2))
    length = trial.best_length(passes)
    rest = inputs[len(inputs) // 4 :]
    slow, fast = run(decoders(paths, name, length), rest, **options)
    return Line(
        drafter=name,
        temperature=options["temperature"],
        alpha=trial.alpha,
        c=trial.c,
        draft_length=length,
        predicted=trial.formula(length),
        predicted_with_rows=trial.speedup(length, passes),
        measured=slow.token_s / fast.token_s,
        identical=sum(map(operator.eq, slow.texts, fast.texts)),
        inputs=len(rest),
    )


def identical(paths: dict[str, str], inputs: Sequence[str], **options: Any) -> dict[str, int]:
    """Return how many texts each drafter leaves as they are when decoded plainly, one by one.

    Drafts are of ragged batches.
    """
    params = [outrider.SamplingParams(seed=seed, **options) for seed in range(len(inputs))]
    plain = outrider.load(paths["target"], profile=False)
    alone = [
        plain.generate(text, params=one).token_ids for text, one in zip(inputs, params, strict=True)
    ]
    counts = {}
    for name in _DRAFTERS:
        _, drafting = decoders(paths, name, TRIED)
        found = drafting.generate_batch(inputs, params=params)
        counts[name] = sum(one.token_ids == ids for one, ids in zip(found, alone, strict=True))
    return counts


def decoders(paths: dict[str, str], name: str, length: int) -> list[outrider.Decoder]:
    """Return plain decoding of the target, and decoding with drafts of a length."""
    drafter = f"model:{paths[name]}"
    drafting = outrider.load(paths["target"], drafter=drafter, max_draft=length, profile=False)
    return [drafting.without_drafter(), drafting]


# -- the recipe -----------------------------------------------------------------------------------


def main() -> None:
    """Train what is missing, then print the table."""
    asked = _options()
    paths = {name: train(name, asked.folder, asked.pair, asked.steps) for name in DECODER_LAYERS}
    document = {
        "pair": asked.pair,
        "steps": asked.steps,
        "lines": [asdict(line) for line in _table(paths, asked)],
        "identity": _identity(paths, asked),
    }
    print(json.dumps(document))


def _table(paths: dict[str, str], asked: argparse.Namespace) -> list[Line]:
    lines: list[Line] = []
    if not asked.inputs:
        return lines
    inputs = [source for source, _ in islice(sentences(asked.pair, _SEEDS["table"]), asked.inputs)]
    columns = ["drafter", "temperature", "alpha", "c", "length"]
    columns += ["predicted", "with rows", "measured", "identical"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name, temperature in product(_DRAFTERS, _TEMPERATURES):
        line = compare(paths, name, inputs, temperature=temperature, max_new_tokens=asked.tokens)
        lines.append(line)
        print(
            f"| {line.drafter} | {line.temperature:g} | {line.alpha:.3f} | {line.c:.3f} "
            f"| {line.draft_length} | {line.predicted:.2f}x | {line.predicted_with_rows:.2f}x "
            f"| {line.measured:.2f}x | {line.identical} of {line.inputs} |",
            flush=True,
        )
    return lines


def _identity(paths: dict[str, str], asked: argparse.Namespace) -> list[dict[str, Any]]:
    count, found = asked.identity, []
    pairs = sentences(asked.pair, _SEEDS["identity"])
    inputs = [source for source, _ in islice(pairs, count)]
    for temperature in _TEMPERATURES if count else ():
        same = identical(paths, inputs, temperature=temperature, max_new_tokens=asked.tokens)
        for name, number in same.items():
            print(
                f"{name}, temperature {temperature:g}, ragged batches: "
                f"{number} of {count} texts identical",
                flush=True,
            )
            found.append({"drafter": name, "temperature": temperature, "identical": number})
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("translation"))
    parser.add_argument("--pair", default="en-de", help="languages: from-into, of en, de and fr")
    parser.add_argument("--steps", type=int, default=400, help="of training, for each model")
    parser.add_argument("--inputs", type=int, default=200, help="sentences of the table")
    parser.add_argument("--identity", type=int, default=0, help="further sentences to compare")
    parser.add_argument("--tokens", type=int, default=64, help="most to write for each")
    asked = parser.parse_args()
    asked.pair = tuple(asked.pair.split("-"))
    if len(set(asked.pair)) != 2 or len(asked.pair) != 2 or not set(asked.pair) <= set(LANGUAGES):
        parser.error(f"--pair names two of {', '.join(LANGUAGES)}, as en-de")
    if min(asked.steps, asked.tokens) < 1 or asked.identity < 0:
        parser.error("--steps and --tokens must be at least 1, --identity at least 0")
    if asked.inputs != 0 and asked.inputs < 4:
        parser.error("--inputs must be 0, for no table, or at least 4")
    return asked


if __name__ == "__main__":
    main()
