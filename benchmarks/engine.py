"""The engine's figures in one run: passes, speculation, efficiency, batches, invariance, memory.

Run `python benchmarks/engine.py PROMPTS.jsonl` on an idle machine; `--parts` picks some of the
parts. All that is compared is interleaved, and given as a ratio. Prints tables, and one JSON
document as the last line.

With `--journal FILE` every finished piece (a prompt with all its decoders, mostly) is kept, and
`--max-minutes X` ends a run between two pieces, with exit code 3: the same command goes on.

passes      plain decoding against Transformers' own eager `generate`, and passes of more rows
speed       each drafter over plain decoding, greedy and at temperature 1, faulty ones among them,
            with the share reached of tau / (T_draft + T_score) by the measured cost of passes
batch       throughput of a batch with drafts over the same batch without
invariant   bits with and without drafts, and what invariant numerics costs
memory      peak, over the libraries and the tokenizer, to weights, cache and one pass's logits
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import memory
import outrider
from common import Prompt, choose_prompts, read_prompts
from decoders import load, named, row_costs, with_drafters
from outrider.difference import first_difference
from outrider.targets.loading import load_model
from pieces import Pieces, Result
from turns import Trial, decode_in_turn, print_tallies, slower_than_plain

PARTS = ("passes", "speed", "batch", "invariant", "memory")
DRAFTERS = ("suffix", "ngram", "eagle", "suffix+eagle", "suffix+ngram+eagle", "wrong", "slow")
_TIME_IS_OVER = 3  # the exit code


# -- passes ------------------------------------------------------------------------------------


def measure_passes(
    options: argparse.Namespace, prompts: Sequence[Prompt], pieces: Pieces
) -> dict[str, Any]:
    """Plain decoding against Transformers' own, and the cost of rows."""
    decoders: dict[str, outrider.Decoder] = {}

    def decoder_of(weights: str) -> outrider.Decoder:
        if weights not in decoders:
            decoders[weights] = load(options, weights)
        return decoders[weights]

    def costs_of(weights: str) -> Result:
        return {str(rows): seconds for rows, seconds in row_costs(decoder_of(weights)).items()}

    def rates() -> Result:
        peer = load_model(options.target, dtype="float32").model
        chosen = prompts[: options.passes_prompts]
        return _rates(options, {name: decoder_of(name) for name in options.weights}, peer, chosen)

    rate_of = pieces.once("rates", *options.weights, work=rates)
    if rate_of is None:
        return {}
    own = rate_of["transformers"]
    print(f"\nTransformers, eager float32: {own:.1f} tokens/s")
    report: dict[str, Any] = {}
    for weights in options.weights:
        costs = pieces.once("rows", weights, work=partial(costs_of, weights))
        if costs is None:
            break
        ratios = {rows: seconds / costs["1"] for rows, seconds in costs.items()}
        rate = rate_of[weights]
        report[weights] = {
            "tokens_per_second": rate,
            "over_transformers": rate / own,
            "pass_ms": {rows: 1e3 * seconds for rows, seconds in costs.items()},
            "pass_ratio": ratios,
        }
        shown = ", ".join(f"{rows} rows {ratio:.2f}x" for rows, ratio in ratios.items())
        print(f"plain {weights}: {rate:.1f} tokens/s, {rate / own:.2f}x; {shown}", flush=True)
    return report


def _rates(
    options: argparse.Namespace,
    decoders: Mapping[str, outrider.Decoder],
    peer: Any,
    prompts: Sequence[Prompt],
) -> dict[str, float]:
    """Tokens a second of plain decoding and of Transformers, prompt by prompt in turn."""
    tokens = dict.fromkeys((*decoders, "transformers"), 0)
    seconds = dict.fromkeys(tokens, 0.0)
    for warm in (True, False):
        for prompt in prompts[:1] if warm else prompts:
            for name in tokens:
                started = time.perf_counter()
                if name == "transformers":
                    ids = torch.tensor([prompt.ids])
                    mask = torch.ones_like(ids)
                    output = peer.generate(
                        ids, attention_mask=mask, do_sample=False, max_new_tokens=options.tokens
                    )
                    count = output.shape[1] - ids.shape[1]
                else:
                    result = decoders[name].generate(
                        prompt.ids, max_new_tokens=options.tokens, temperature=0
                    )
                    count = len(result.token_ids)
                if not warm:
                    seconds[name] += time.perf_counter() - started
                    tokens[name] += count
    return {name: tokens[name] / seconds[name] for name in tokens}


# -- speed -------------------------------------------------------------------------------------


def measure_speed(
    options: argparse.Namespace, prompts: Sequence[Prompt], pieces: Pieces
) -> dict[str, Any]:
    """Every drafter over plain decoding, by kind of task."""
    report: dict[str, Any] = {}
    for weights in options.weights:
        trial = Trial(
            names=("none", *options.drafters),
            load=partial(_speed_decoders, options, weights),
            tokens=options.tokens,
            repeats=options.repeats,
            pass_table=lambda decoder, context: row_costs(decoder, context, 3),
        )
        for temperature in options.temperatures:
            tallies = decode_in_turn(
                replace(trial, temperature=temperature),
                prompts,
                pieces,
                *("speed", weights, temperature),
            )
            title = f"{weights}, temperature {temperature:g}"
            report[title] = print_tallies(title, tallies)
            slower = slower_than_plain(report[title])
            print("slower than plain: " + ("; ".join(slower) or "none"), flush=True)
    return report


def _speed_decoders(options: argparse.Namespace, weights: str) -> dict[str, outrider.Decoder]:
    return with_drafters(load(options, weights), options.drafters, options)


# -- batch -------------------------------------------------------------------------------------


def measure_batch(
    options: argparse.Namespace, prompts: Sequence[Prompt], pieces: Pieces
) -> dict[str, Any]:
    """Throughput by batch size, with drafts and without, in turn."""
    report: dict[str, Any] = {}
    for weights in options.weights:
        for size in options.batches:
            found = pieces.once(
                *("batch", weights, size),
                work=partial(_batch, options, prompts, weights, size),
            )
            if found is None:
                return report
            report[f"{weights}, {size}"] = found
            plain = found["none"]
            rest = (
                f"{name} {rate:.1f} ({rate / plain:.2f}x)"
                for name, rate in found.items()
                if name not in ("none", "identical", "of")
            )
            print(
                f"{weights}, batch {size}: plain {plain:.1f} tokens/s, {', '.join(rest)}; "
                f"{found['identical']} of {found['of']} identical",
                flush=True,
            )
    return report


def _batch(
    options: argparse.Namespace, prompts: Sequence[Prompt], weights: str, size: int
) -> Result:
    """Tokens a second of batches of a size, and how many answers are plain decoding's."""
    plain = load(options, weights, max_batch=size)
    decoders = with_drafters(plain, options.batch_drafters, options)
    names = list(decoders)
    ids = [prompt.ids for prompt in prompts[: max(options.batch_prompts, size)]]
    ids = ids[: len(ids) // size * size]  # whole batches only
    for decoder in decoders.values():
        decoder.generate_batch(ids[:size], max_new_tokens=8, temperature=0)
    tokens, seconds = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    texts: dict[str, list[Sequence[int]]] = defaultdict(list)
    for turn, first in enumerate(range(0, len(ids), size)):
        start = turn % len(names)
        for name in (*names[start:], *names[:start]):
            started = time.perf_counter()
            results = decoders[name].generate_batch(
                ids[first : first + size], max_new_tokens=options.tokens, temperature=0
            )
            seconds[name] += time.perf_counter() - started
            texts[name] += [result.token_ids for result in results]
            tokens[name] += sum(len(result.token_ids) for result in results)
    others = [text for name in names[1:] for text in texts[name]]
    identical = sum(
        one == other for one, other in zip(others, texts["none"] * (len(names) - 1), strict=True)
    )
    rates = {name: tokens[name] / seconds[name] for name in names}
    return rates | {"identical": identical, "of": len(others)}


# -- invariant ---------------------------------------------------------------------------------


def measure_invariant(
    options: argparse.Namespace, prompts: Sequence[Prompt], pieces: Pieces
) -> dict[str, Any]:
    """Bits of log-probabilities with drafts against plain, and the cost against fast numerics."""
    report: dict[str, Any] = {}
    for weights in options.weights:
        checker = _Bits(options, prompts, weights)
        for name in options.drafters:
            found = pieces.once(
                *("invariant", weights, name),
                work=partial(checker.compare, name),
            )
            if found is None:
                return report
            report[f"{weights}, {name}"] = found
            told = f"{found['equal']} of {found['of']} bitwise equal, {found['tokens']} tokens"
            print(f"{weights}, {name}: {told}", flush=True)
        trial = Trial(
            names=("fast", "invariant"),
            load=partial(_numerics, options, weights),
            tokens=options.tokens,
            repeats=options.repeats,
        )
        chosen = prompts[: options.passes_prompts]
        cost = decode_in_turn(trial, chosen, pieces, "cost", weights)
        report[f"{weights}, cost"] = print_tallies(f"{weights}, invariant against fast", cost)
    return report


def _numerics(options: argparse.Namespace, weights: str) -> dict[str, outrider.Decoder]:
    return {name: load(options, weights, numerics=name) for name in ("fast", "invariant")}


class _Bits:
    """Answers with log-probabilities under invariant numerics; plain decoding's are kept."""

    def __init__(
        self, options: argparse.Namespace, prompts: Sequence[Prompt], weights: str
    ) -> None:
        self._options = options
        self._weights = weights
        self._ids = [prompt.ids for _ in options.temperatures for prompt in prompts]
        self._params = [
            outrider.SamplingParams(
                temperature=temperature, seed=seed, max_new_tokens=options.tokens, logprobs=10
            )
            for temperature in options.temperatures
            for seed in range(len(prompts))
        ]
        self._plain: outrider.Decoder | None = None
        self._expected: list[Any] = []

    def compare(self, name: str) -> Result:
        """Count the answers with drafts that are plain decoding's, bit for bit."""
        if self._plain is None:
            self._plain = load(self._options, self._weights, numerics="invariant")
            self._expected = self._answers(self._plain)
        decoder = with_drafters(self._plain, [name], self._options)[name]
        results = self._answers(decoder)
        equal = sum(
            first_difference(one.token_ids, other.token_ids) is None
            and first_difference(one.logprobs or (), other.logprobs or ()) is None
            for one, other in zip(results, self._expected, strict=True)
        )
        tokens = sum(len(result.token_ids) for result in results)
        return {"equal": equal, "of": len(self._ids), "tokens": tokens}

    def _answers(self, decoder: outrider.Decoder) -> list[Any]:
        return list(decoder.generate_batch(self._ids, params=self._params))


# -- memory ------------------------------------------------------------------------------------


def measure_memory(
    options: argparse.Namespace, prompts: Sequence[Prompt], pieces: Pieces
) -> dict[str, Any]:
    """What a process holds at most, by type of weights."""
    report: dict[str, Any] = {}
    for weights in options.weights:
        found = pieces.once("memory", weights, work=partial(_memory, options, weights))
        if found is None:
            break
        report[weights] = found
        memory.show(weights, found)
    return report


def _memory(options: argparse.Namespace, weights: str) -> Result:
    load(options, weights)  # what is converted or compiled once is not what is measured
    return memory.measure(
        *named(options, weights), compile=not options.eager, expanded=weights == "expanded"
    )


MEASURES = {
    "passes": measure_passes,
    "speed": measure_speed,
    "batch": measure_batch,
    "invariant": measure_invariant,
    "memory": measure_memory,
}


def _parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("prompts", type=Path)
    add("--target", default="smollm2-135m")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add(
        "--weights",
        nargs="+",
        choices=("float32", "expanded", "bfloat16", "int8"),
        default=["float32", "int8"],
        help="expanded is float32 that reads no blocks of a GGUF file",
    )
    add("--drafters", nargs="+", default=list(DRAFTERS), help="specs, joined by +; wrong, slow")
    add(
        "--max-draft",
        type=lambda text: text if text == "auto" else int(text),
        default="auto",
        help="auto, or so many tokens in every round",
    )
    add("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    add("--tokens", type=int, default=128, help="most tokens of an answer")
    add("--repeats", type=int, default=1, help="how often the speed of each prompt is measured")
    add("--tasks", nargs="+", default=None, help="only the prompts of these kinds")
    add("--per-task", type=int, default=None, help="only the first so many prompts of each kind")
    add("--passes-prompts", type=int, default=10)
    add("--batches", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    add("--batch-drafters", nargs="+", default=["suffix", "suffix+eagle"])
    add("--batch-prompts", type=int, default=16, help="at least as many as the batch")
    add("--eager", action="store_true", help="passes are not compiled")
    add("--journal", type=Path, default=None, help="keeps what is done; the command goes on there")
    add("--max-minutes", type=float, default=None, help="end after so many, between two pieces")
    return parser


def _made_with(options: argparse.Namespace, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Return what must be the same for pieces to go together."""
    loose = ("parts", "weights", "journal", "max_minutes", "folder", "prompts")
    kept = {name: value for name, value in vars(options).items() if name not in loose}
    return kept | {
        "prompts": [prompt.id for prompt in prompts],
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "processor": torch.backends.cpu.get_cpu_capability(),
    }


def main() -> None:
    """Run the recipe."""
    options = _parser().parse_args()
    prompts = choose_prompts(
        read_prompts(options.prompts, outrider.load(options.target, compile=False)),
        options.tasks,
        options.per_task,
    )
    made_with = _made_with(options, prompts)
    pieces = Pieces(options.journal, made_with, options.max_minutes)
    report: dict[str, Any] = {"made_with": made_with}
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        for part in options.parts:
            print(f"\n== {part}")
            report[part] = MEASURES[part](options, prompts, pieces)
            if pieces.is_over:
                print("time is over; the same command goes on" if options.journal else "", end="\n")
                break
    print(json.dumps(report))
    raise SystemExit(_TIME_IS_OVER if pieces.is_over else 0)


if __name__ == "__main__":
    main()
