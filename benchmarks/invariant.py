"""Whether invariant numerics give the bits of plain decoding: ids and log-probabilities.

Run `python benchmarks/invariant.py PROMPTS.jsonl --dtype bfloat16`. Decodes every prompt plainly
and with each drafter, greedily and with log-probabilities of the ten likeliest tokens, all under
`numerics="invariant"`, and compares them for equality. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import outrider
from common import DRAFTERS, first_difference, load_decoder, read_prompts


def main() -> None:
    """Run the recipe."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument(
        "--limit", type=int, default=None, help="use only the first so many prompts"
    )
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()
    report: dict[str, Any] = {"dtype": options.dtype}
    plain: list[outrider.Result] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in DRAFTERS:
            decoder = load_decoder(
                name,
                options.target,
                Path(folder),
                dtype=options.dtype,
                numerics="invariant",
                max_batch=options.batch,
            )
            prompts = read_prompts(options.prompts, decoder, options.limit)
            params = [
                outrider.SamplingParams(
                    temperature=options.temperature,
                    seed=seed,
                    max_new_tokens=options.tokens,
                    logprobs=10,
                )
                for seed in range(len(prompts))
            ]
            started = time.perf_counter()
            results = decoder.generate_batch([p.ids for p in prompts], params=params)
            seconds = time.perf_counter() - started
            plain = plain or results
            forks = {}
            for prompt, one, other in zip(prompts, results, plain, strict=True):
                at = first_difference(one.token_ids, other.token_ids)
                of_bits = first_difference(one.logprobs or (), other.logprobs or ())
                if at is not None or of_bits is not None:
                    forks[prompt.id] = {"ids": at, "logprobs": of_bits}
            tokens = sum(len(result.token_ids) for result in results)
            tau = tokens / sum(result.stats.rounds for result in results)
            print(
                f"{options.dtype} {name:8} {len(prompts) - len(forks)} of {len(prompts)} bitwise "
                f"equal to plain ({tokens} tokens, tau {tau:.2f}, {seconds:.0f} s) {forks or ''}",
                flush=True,
            )
            report[name] = {"forks": forks, "tokens": tokens, "tau": tau, "seconds": seconds}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
