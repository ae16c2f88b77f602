"""Decoders compared prompt by prompt in turn, so that a drifting machine is unfair to nobody."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import outrider
from common import Prompt, first_difference

Tallies = dict[str, dict[str, "Tally"]]
"""By kind of task, "all" among them, then by decoder."""


@dataclass
class Tally:
    """Totals of one decoder on one kind of task."""

    prompts: int = 0
    identical: int = 0
    tokens: int = 0
    rounds: int = 0
    seconds: float = 0.0
    host_s: float = 0.0
    draft_s: float = 0.0
    decode_s: float = 0.0
    """Time but that of each request's first pass, which reads the prompt."""
    later_s: float = 0.0
    """Time after each request's first round, which reads the prompt."""
    table_s: float = 0.0
    """The same time by the measured table: what passes of as many rows take, and the drafting."""

    def add(self, other: Tally) -> None:
        """Take in another tally."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def row(self, plain: Tally) -> dict[str, Any]:
        """Return the figures, as ratios over plain decoding."""
        return {
            "prompts": self.prompts,
            "identical": self.identical,
            "tokens": self.tokens,
            "tokens_per_second": self.tokens / self.seconds,
            "ratio": (self.tokens / self.seconds) / (plain.tokens / plain.seconds),
            "decode_ratio": (self.tokens / self.decode_s) / (plain.tokens / plain.decode_s),
            "tau": self.tokens / self.rounds,
            "host_ms_per_round": 1e3 * self.host_s / self.rounds,
            "draft_ms_per_round": 1e3 * self.draft_s / self.rounds,
            "efficiency": self.table_s / self.later_s if self.table_s else None,
        }


def decode_in_turn(
    decoders: Mapping[str, outrider.Decoder],
    prompts: Sequence[Prompt],
    *,
    tokens: int,
    temperature: float = 0.0,
    pass_table: Callable[[outrider.Decoder, int], Mapping[int, float]] | None = None,
) -> Tallies:
    """Decode every prompt with every decoder, the order turning round from prompt to prompt.

    The first decoder is the one whose tokens the others must equal. `pass_table` measures, for each
    prompt anew, the seconds of passes of so many rows after so many tokens.
    """
    tallies: Tallies = defaultdict(lambda: defaultdict(Tally))
    names = list(decoders)
    for decoder in decoders.values():  # the first passes of a process are slow
        decoder.generate(prompts[0].ids, max_new_tokens=8)
    for index, prompt in enumerate(prompts):
        turn = index % len(names)
        table = None
        if pass_table is not None:
            table = pass_table(decoders[names[0]], len(prompt.ids) + tokens // 2)
        ids: dict[str, Sequence[int]] = {}
        tally: dict[str, Tally] = {}
        for name in names[turn:] + names[:turn]:
            started = time.perf_counter()
            result = decoders[name].generate(
                prompt.ids, max_new_tokens=tokens, temperature=temperature, seed=index
            )
            seconds = time.perf_counter() - started
            tally[name] = _tally(result.stats, seconds, table)
            ids[name] = result.token_ids
        for name in names:
            tally[name].identical += first_difference(ids[name], ids[names[0]]) is None
            tallies[prompt.task][name].add(tally[name])
            tallies["all"][name].add(tally[name])
    return tallies


def _tally(stats: Any, seconds: float, table: Mapping[int, float] | None) -> Tally:
    tally = Tally(
        prompts=1,
        tokens=stats.tokens,
        rounds=stats.rounds,
        seconds=seconds,
        host_s=stats.host_s,
        draft_s=stats.draft_s,
        decode_s=seconds - stats.prefill_s,
    )
    if table is not None:
        tally.later_s = sum(choice.seconds for choice in stats.choices.values())
        tally.table_s = stats.draft_s
        for choice in stats.choices.values():
            tally.table_s += choice.rounds * _interpolated(table, 1 + choice.drafted)
    return tally


def _interpolated(table: Mapping[int, float], rows: int) -> float:
    below = max(known for known in table if known <= rows)
    above = min((known for known in table if known >= rows), default=below)
    share = (rows - below) / (above - below) if above > below else 0.0
    return table[below] + share * (table[above] - table[below])


def print_tallies(title: str, tallies: Tallies) -> dict[str, Any]:
    """Print a table, and return its figures."""
    print(f"\n{title}")
    columns = ("ratio", "decode", "tau", "tok/s", "host ms", "draft ms", "effic.", "identical")
    print(f"{'task':8} {'decoder':14} {' '.join(f'{column:>8}' for column in columns)}")
    report: dict[str, Any] = {}
    for task, by_name in tallies.items():
        plain = next(iter(by_name.values()))
        report[task] = {name: tally.row(plain) for name, tally in by_name.items()}
        for name, row in report[task].items():
            efficiency = "" if row["efficiency"] is None else f"{row['efficiency']:.1%}"
            cells = (
                f"{row['ratio']:.2f}",
                f"{row['decode_ratio']:.2f}",
                f"{row['tau']:.2f}",
                f"{row['tokens_per_second']:.1f}",
                f"{row['host_ms_per_round']:.2f}",
                f"{row['draft_ms_per_round']:.3f}",
                efficiency,
                f"{row['identical']}/{row['prompts']}",
            )
            print(f"{task:8} {name:14} {' '.join(f'{c:>8}' for c in cells)}", flush=True)
    return report
