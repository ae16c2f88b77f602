"""Speculative over plain decoding, prompt by prompt in turn, as ratios by kind of task.

Run `python benchmarks/speed.py PROMPTS.jsonl` on an idle machine. Each prompt is decoded plainly
and with each drafter, one after the other (the order turns round from prompt to prompt), so that a
machine whose speed drifts is unfair to nobody. A ratio is total tokens per second over total
tokens per second; host time is all but the models' passes. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from common import first_difference, load_decoder, read_prompts


class Tally:
    """Totals of one drafter on one kind of task."""

    def __init__(self) -> None:
        self.tokens = 0
        self.seconds = 0.0
        self.rounds = 0
        self.host_s = 0.0
        self.draft_s = 0.0
        self.identical = 0
        self.prompts = 0

    def add(self, other: Tally) -> None:
        """Take in another tally."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def row(self, plain: Tally) -> dict[str, Any]:
        """Return the figures, as ratios over plain decoding."""
        return {
            "prompts": self.prompts,
            "identical": self.identical,
            "tokens": self.tokens,
            "tokens_per_second": self.tokens / self.seconds,
            "ratio": (self.tokens / self.seconds) / (plain.tokens / plain.seconds),
            "tau": self.tokens / self.rounds,
            "host_ms_per_round": 1e3 * self.host_s / self.rounds,
            "draft_ms_per_round": 1e3 * self.draft_s / self.rounds,
        }


def main() -> None:
    """Run the recipe."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--drafters", default="suffix", help="separated by commas")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument(
        "--limit", type=int, default=None, help="use only the first so many prompts"
    )
    parser.add_argument("--task", default=None, help="use only the prompts of this kind")
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()
    tallies: dict[str, dict[str, Tally]] = defaultdict(lambda: defaultdict(Tally))
    with tempfile.TemporaryDirectory() as folder:
        names = ["none", *options.drafters.split(",")]
        decoders = {
            name: load_decoder(name, options.target, Path(folder), dtype=options.dtype)
            for name in names
        }
        prompts = read_prompts(options.prompts, decoders["none"], options.limit)
        prompts = [p for p in prompts if options.task in (None, p.task)]
        for decoder in decoders.values():  # the first passes of a process are slow
            decoder.generate(prompts[0].ids, max_new_tokens=8)
        for index, prompt in enumerate(prompts):
            turn = index % len(names)
            ids = {}
            for name in names[turn:] + names[:turn]:
                started = time.perf_counter()
                result = decoders[name].generate(
                    prompt.ids,
                    max_new_tokens=options.tokens,
                    temperature=options.temperature,
                    seed=index,
                )
                tally = tallies[prompt.task][name]
                tally.seconds += time.perf_counter() - started
                tally.tokens += len(result.token_ids)
                tally.rounds += result.stats.rounds
                tally.host_s += result.stats.host_s
                tally.draft_s += result.stats.draft_s
                tally.prompts += 1
                ids[name] = result.token_ids
            for name in names:
                same = first_difference(ids[name], ids["none"]) is None
                tallies[prompt.task][name].identical += same
    report: dict[str, Any] = {"threads": torch.get_num_threads(), "dtype": options.dtype}
    for tasks in list(tallies.values()):
        for name, tally in tasks.items():
            tallies["all"][name].add(tally)
    print(
        f"{'task':8} {'drafter':8} {'ratio':>6} {'tau':>5} {'tok/s':>6} {'host ms':>8} "
        f"{'draft ms':>8}  identical"
    )
    for task, tasks in tallies.items():
        report[task] = {name: tally.row(tasks["none"]) for name, tally in tasks.items()}
        for name in names:
            row = report[task][name]
            print(
                f"{task:8} {name:8} {row['ratio']:6.2f} {row['tau']:5.2f} "
                f"{row['tokens_per_second']:6.1f} {row['host_ms_per_round']:8.2f} "
                f"{row['draft_ms_per_round']:8.3f}  {row['identical']}/{row['prompts']}"
            )
    print(json.dumps(report))


if __name__ == "__main__":
    main()
