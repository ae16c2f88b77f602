"""The engine's figures in one run: passes, speculation, efficiency, batches, invariance, memory.

Run `python benchmarks/engine.py PROMPTS.jsonl` on an idle machine; `--parts` picks some of the
parts. All that is compared is interleaved, and given as a ratio. Prints tables, and one JSON
document as the last line.

passes      plain decoding against Transformers' own eager `generate`, and passes of more rows
speed       each drafter over plain decoding, greedy and at temperature 1, faulty ones among them
batch       throughput of a batch with drafts over the same batch without
invariant   bits with and without drafts, and what invariant numerics costs
memory      peak, over the libraries and the tokenizer, to weights, cache and one pass's logits
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import outrider
from common import Prompt, cut_model, first_difference, read_prompts
from faulty import SlowDrafter, WrongDrafter
from outrider.drafters import build_drafter, read_head
from outrider.drafters.base import Drafter
from outrider.drafters.model import ModelDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.spec import parse_spec
from outrider.drafters.suffix import SuffixDrafter
from outrider.targets.base import Rows
from outrider.targets.loading import load_model
from outrider.types import DraftTree
from turns import decode_in_turn, print_tallies

PARTS = ("passes", "speed", "batch", "invariant", "memory")
ROWS = (1, 2, 3, 4, 6, 8, 12, 16)


def load(options: argparse.Namespace, weights: str, **more: Any) -> outrider.Decoder:
    """Load the target in one of its forms: "float32", "bfloat16" or "int8"."""
    spec = options.target + ("@int8" if weights == "int8" else "")
    dtype = "float32" if weights == "int8" else weights
    return outrider.load(spec, dtype=dtype, compile=not options.eager, profile=False, **more)


def with_drafter(
    plain: outrider.Decoder, name: str, options: argparse.Namespace
) -> outrider.Decoder:
    """Return a decoder of the same target with drafters by name, several joined by "+"."""
    drafters = [drafter_of(part, plain, options) for part in name.split("+")]
    return plain.using(drafters, max_draft=options.max_draft)


def drafter_of(kind: str, plain: outrider.Decoder, options: argparse.Namespace) -> Drafter[Any]:
    """Build a drafter: by its spec, a cut of the target ("model", "tree"), or a faulty one."""
    if kind in ("model", "tree"):
        cut = outrider.load(cut_model(options.target, 2, options.folder), dtype="float32")
        vocab = plain.engine.target.vocab_size
        width = 1 if kind == "model" else 4
        return ModelDrafter(cut.engine.target, vocab_size=vocab, shared_ids=vocab, width=width)
    if ":" in kind:
        spec, model = parse_spec(kind), plain.loaded.model
        built = build_drafter(
            spec,
            plain.loaded,
            plain.engine.target,  # type: ignore[arg-type]
            head=read_head(spec, plain.name, model.config),
        )
        assert built is not None
        return built
    kinds: dict[str, Callable[[], Drafter[Any]]] = {
        "suffix": SuffixDrafter,
        "ngram": NgramDrafter,
        "wrong": WrongDrafter,
        "slow": SlowDrafter,
    }
    return kinds[kind]()


# -- passes ------------------------------------------------------------------------------------


def measure_passes(options: argparse.Namespace, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Plain decoding against Transformers' own, and the cost of rows."""
    report: dict[str, Any] = {}
    decoders = {weights: load(options, weights) for weights in options.weights}
    peer = load_model(options.target, dtype="float32").model
    rates = _rates(options, decoders, peer, prompts[: options.passes_prompts])
    own = rates.pop("transformers")
    print(f"\nTransformers, eager float32: {own:.1f} tokens/s")
    for weights, rate in rates.items():
        costs = row_costs(decoders[weights])
        ratios = {rows: seconds / costs[1] for rows, seconds in costs.items()}
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


def row_costs(decoder: outrider.Decoder, context: int = 256, repeats: int = 25) -> dict[int, float]:
    """Median seconds of a pass by its rows, interleaved, after so many tokens."""
    target = decoder.engine.target
    text = [7 + i * 31 % 1000 for i in range(context + max(ROWS))]
    sequence = target.open(len(text) + 1)
    target.score([Rows(sequence, tuple(text[:context]))])
    target.commit(sequence, ())
    seconds: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for _ in range(repeats):
        for rows in ROWS:
            tree = DraftTree.chain(text[context + 1 : context + rows])
            started = time.perf_counter()
            target.score([Rows(sequence, (text[context],), tree)])
            seconds[rows].append(time.perf_counter() - started)
    target.close(sequence)
    return {rows: statistics.median(values) for rows, values in seconds.items()}


# -- speed -------------------------------------------------------------------------------------


def measure_speed(options: argparse.Namespace, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Every drafter over plain decoding, by kind of task."""
    report: dict[str, Any] = {}
    for weights in options.weights:
        plain = load(options, weights)
        for temperature in options.temperatures:
            decoders = {"none": plain}
            decoders |= {name: with_drafter(plain, name, options) for name in options.drafters}
            tallies = decode_in_turn(
                decoders,
                prompts,
                tokens=options.tokens,
                temperature=temperature,
                pass_table=lambda decoder, context: row_costs(decoder, context, 3),
            )
            title = f"{weights}, temperature {temperature:g}"
            report[title] = print_tallies(title, tallies)
    return report


# -- batch -------------------------------------------------------------------------------------


def measure_batch(options: argparse.Namespace, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Throughput by batch size, with drafts and without, in turn."""
    report: dict[str, Any] = {}
    for weights in options.weights:
        for size in (1, 2, 4, 8, 16):
            plain = load(options, weights, max_batch=size)
            decoders = {"none": plain, "suffix": with_drafter(plain, "suffix", options)}
            ids = [prompt.ids for prompt in prompts[: max(16, size)]]
            tokens = dict.fromkeys(decoders, 0)
            seconds = dict.fromkeys(decoders, 0.0)
            for first in range(0, len(ids), size):
                texts = {}
                for name, decoder in decoders.items():
                    started = time.perf_counter()
                    results = decoder.generate_batch(
                        ids[first : first + size], max_new_tokens=options.tokens, temperature=0
                    )
                    seconds[name] += time.perf_counter() - started
                    texts[name] = [result.token_ids for result in results]
                    tokens[name] += sum(len(text) for text in texts[name])
            rates = {name: tokens[name] / seconds[name] for name in decoders}
            same = texts["none"] == texts["suffix"]
            report[f"{weights}, {size}"] = rates | {"identical": same}
            print(
                f"{weights}, batch {size}: plain {rates['none']:.1f} tokens/s, suffix "
                f"{rates['suffix']:.1f} ({rates['suffix'] / rates['none']:.2f}x)",
                flush=True,
            )
    return report


# -- invariant ---------------------------------------------------------------------------------


def measure_invariant(options: argparse.Namespace, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Bits of log-probabilities with drafts against plain, and the cost against fast numerics."""
    report: dict[str, Any] = {}
    for weights in options.weights:
        plain = load(options, weights, numerics="invariant")
        params = [
            outrider.SamplingParams(
                temperature=temperature, seed=seed, max_new_tokens=options.tokens, logprobs=10
            )
            for temperature in options.temperatures
            for seed in range(len(prompts))
        ]
        ids = [prompt.ids for _ in options.temperatures for prompt in prompts]
        expected = plain.generate_batch(ids, params=params)
        for name in options.drafters:
            results = with_drafter(plain, name, options).generate_batch(ids, params=params)
            equal = sum(
                first_difference(one.token_ids, other.token_ids) is None
                and first_difference(one.logprobs or (), other.logprobs or ()) is None
                for one, other in zip(results, expected, strict=True)
            )
            tokens = sum(len(result.token_ids) for result in results)
            report[f"{weights}, {name}"] = {"equal": equal, "of": len(ids), "tokens": tokens}
            print(
                f"{weights}, {name}: {equal} of {len(ids)} bitwise equal, {tokens} tokens",
                flush=True,
            )
        fast = load(options, weights)
        pair = {"fast": fast, "invariant": plain}
        cost = decode_in_turn(pair, prompts[: options.passes_prompts], tokens=options.tokens)
        report[f"{weights}, cost"] = print_tallies(f"{weights}, invariant against fast", cost)
    return report


# -- memory ------------------------------------------------------------------------------------

_MEMORY = """
import ctypes, pathlib, re, sys
import torch, outrider
from transformers import LlamaConfig, LlamaForCausalLM
from outrider.targets.loading import load_tokenizer

def resident(field):
    text = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(field + r":\\s*(\\d+)", text).group(1))

spec, dtype, compile = sys.argv[1:]
tokenizer = load_tokenizer(spec)
tiny = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
                   num_attention_heads=2, bos_token_id=None, eos_token_id=None, pad_token_id=None)
tiny = LlamaForCausalLM(tiny).eval().to(getattr(torch, dtype))
outrider.load(tiny, drafter="suffix").generate([1, 2] * 9, max_new_tokens=8, temperature=0)
ctypes.CDLL(None).malloc_trim(0)  # what is held, not what was freed and could be used again
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = resident("VmRSS")
decoder = outrider.load(
    spec, tokenizer=tokenizer, dtype=dtype, compile=compile == "True", drafter="suffix"
)
loaded = resident("VmHWM")
decoder.generate("Repeat: " + "one two three " * 80, max_new_tokens=128, temperature=0)
target = decoder.engine.target
weights = {t.data_ptr(): t.nbytes for t in (*target.model.parameters(), *target.model.buffers())}
rows = 16 * target.vocab_size * 4
print(before, loaded, resident("VmHWM"), sum(weights.values()), target.cache_bytes, rows)
"""


def measure_memory(options: argparse.Namespace) -> dict[str, Any]:
    """Peak of a process of its own, over what it held before any weight was read.

    That is the libraries, the code of a pass (a tiny model has run one) and the tokenizer, which
    cost the same however large the model is. It is printed too, and is no part of the ratio.
    """
    report: dict[str, Any] = {}
    for weights in options.weights:
        spec = options.target + ("@int8" if weights == "int8" else "")
        dtype = "float32" if weights == "int8" else weights
        load(options, weights)  # what is converted or compiled once is not what is measured
        command = [sys.executable, "-c", _MEMORY, spec, dtype, str(not options.eager)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        before, loaded, peak, model, cache, logits = map(int, output.split()[-6:])
        needed = model + cache + logits
        report[weights] = {
            "needed": needed,
            "before": before,
            "peak": peak - before,
            "loading": loaded - before,
            "ratio": (peak - before) / needed,
        }
        print(
            f"{weights}: peak {_mib(peak - before)} (after loading {_mib(loaded - before)}) over "
            f"the {_mib(before)} of libraries and tokenizer; weights {_mib(model)} + cache "
            f"{_mib(cache)} + logits {_mib(logits)}: {(peak - before) / needed:.2f}x",
            flush=True,
        )
    return report


def _mib(number: int) -> str:
    return f"{number / 2**20:,.0f} MiB"


MEASURES = {
    "passes": measure_passes,
    "speed": measure_speed,
    "batch": measure_batch,
    "invariant": measure_invariant,
}


def main() -> None:
    """Run the recipe."""
    description = __doc__.splitlines()[0] if __doc__ else None
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--weights", nargs="+", default=["float32", "int8"])
    parser.add_argument("--drafters", nargs="+", default=["suffix", "ngram"])
    parser.add_argument(
        "--max-draft",
        type=lambda text: text if text == "auto" else int(text),
        default="auto",
        help="auto, or so many tokens in every round",
    )
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--task", default=None, help="only the prompts of this kind")
    parser.add_argument("--passes-prompts", type=int, default=10)
    parser.add_argument("--eager", action="store_true", help="passes are not compiled")
    options = parser.parse_args()
    report: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "processor": torch.backends.cpu.get_cpu_capability(),
    }
    folder = tempfile.TemporaryDirectory()
    options.folder = Path(folder.name)
    prompts = read_prompts(options.prompts, outrider.load(options.target), options.limit)
    prompts = [prompt for prompt in prompts if options.task in (None, prompt.task)]
    for part in options.parts:
        print(f"\n== {part}")
        if part == "memory":
            report[part] = measure_memory(options)
        else:
            report[part] = MEASURES[part](options, prompts)
    folder.cleanup()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
