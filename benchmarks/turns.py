"""Decoders compared prompt by prompt in turn, so that a drifting machine is unfair to nobody."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

import outrider
from common import Prompt
from outrider.difference import first_difference
from pieces import Pieces, Result

Tallies = dict[str, dict[str, list["Tally"]]]
"""By kind of task, "all" among them, then by decoder: one for each repeat."""
PassTable = Callable[[outrider.Decoder, int], Mapping[int, float]]
"""Measures the seconds of passes of so many rows, after so many tokens."""

LEAST = 0.98
"""A ratio to plain decoding below which a decoder counts as slower."""


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

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Trial:
    """Decoders to compare, the first of which says what the others must, and how."""

    names: tuple[str, ...]
    load: Callable[[], Mapping[str, outrider.Decoder]]
    """Called when there is something left to decode."""
    tokens: int
    temperature: float = 0.0
    repeats: int = 1
    pass_table: PassTable | None = None
    """Asked for each prompt anew."""


def decode_in_turn(
    trial: Trial, prompts: Sequence[Prompt], pieces: Pieces, *key: object
) -> Tallies:
    """Decode every prompt with every decoder, the order turning round from prompt to prompt.

    A prompt is a piece, called `key`, repeat and its id. When time is over, the tallies are of what
    was decoded by then.
    """
    tallies: Tallies = defaultdict(lambda: defaultdict(list))
    decoders: dict[str, outrider.Decoder] = {}

    def turn(number: int, index: int) -> Result:
        if not decoders:
            decoders.update(trial.load())
            for decoder in decoders.values():  # the first passes of a process are slow
                decoder.generate(prompts[0].ids, max_new_tokens=8)
        return _turn(trial, decoders, prompts[index], seed=index, start=number)

    for repeat in range(trial.repeats):
        for index, prompt in enumerate(prompts):
            number = repeat * len(prompts) + index
            found = pieces.once(*key, repeat, prompt.id, work=partial(turn, number, index))
            if found is None:
                return tallies
            for task in (prompt.task, "all"):
                for name in trial.names:
                    repeats = tallies[task][name]
                    if len(repeats) <= repeat:
                        repeats.append(Tally())
                    repeats[-1].add(Tally(**found[name]))
    return tallies


def _turn(
    trial: Trial,
    decoders: Mapping[str, outrider.Decoder],
    prompt: Prompt,
    *,
    seed: int,
    start: int,
) -> Result:
    """Decode a prompt with each decoder, beginning with the one whose turn it is."""
    first = start % len(trial.names)
    plain = decoders[trial.names[0]]
    table = None
    if trial.pass_table is not None:
        table = trial.pass_table(plain, len(prompt.ids) + trial.tokens // 2)
    ids: dict[str, Sequence[int]] = {}
    tally: dict[str, Tally] = {}
    for name in (*trial.names[first:], *trial.names[:first]):
        started = time.perf_counter()
        result = decoders[name].generate(
            prompt.ids, max_new_tokens=trial.tokens, temperature=trial.temperature, seed=seed
        )
        tally[name] = _tally(result.stats, time.perf_counter() - started, table)
        ids[name] = result.token_ids
    for name in trial.names:
        tally[name].identical += first_difference(ids[name], ids[trial.names[0]]) is None
    return {name: asdict(one) for name, one in tally.items()}


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
    """Return the seconds of so many rows: between those that were measured, or the widest's."""
    below = max(known for known in table if known <= rows)
    above = min((known for known in table if known >= rows), default=below)
    share = (rows - below) / (above - below) if above > below else 0.0
    return table[below] + share * (table[above] - table[below])


def print_tallies(title: str, tallies: Tallies) -> dict[str, Any]:
    """Print a table, and return its figures."""
    print(f"\n{title}")
    columns = ("ratio", "low", "high", "decode", "tau", "tok/s", "host ms", "draft ms", "effic.")
    print(f"{'task':9} {'decoder':20} {' '.join(f'{column:>8}' for column in columns)} identical")
    report: dict[str, Any] = {}
    for task, by_name in tallies.items():
        plain = next(iter(by_name.values()))
        report[task] = {name: _row(repeats, plain) for name, repeats in by_name.items()}
        for name, row in report[task].items():
            print(f"{task:9} {name:20} {_cells(row)}", flush=True)
    return report


def slower_than_plain(report: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return the rows of a table that are slower than plain decoding, in words."""
    return [
        f"{name} on {task}: {row['ratio']:.3f}x"
        for task, rows in report.items()
        for name, row in rows.items()
        if row["ratio"] < LEAST
    ]


def _row(repeats: Sequence[Tally], plain: Sequence[Tally]) -> dict[str, Any]:
    """Return the figures of all repeats together, as ratios over plain decoding."""
    whole, other = _sum(repeats), _sum(plain)
    ratios = [one.rate / two.rate for one, two in zip(repeats, plain, strict=True)]
    return {
        "prompts": whole.prompts,
        "identical": whole.identical,
        "tokens": whole.tokens,
        "tokens_per_second": whole.rate,
        "ratio": whole.rate / other.rate,
        "ratios": ratios,
        "decode_ratio": (whole.tokens / whole.decode_s) / (other.tokens / other.decode_s),
        "tau": whole.tokens / whole.rounds,
        "host_ms_per_round": 1e3 * whole.host_s / whole.rounds,
        "draft_ms_per_round": 1e3 * whole.draft_s / whole.rounds,
        "efficiency": whole.table_s / whole.later_s if whole.table_s else None,
    }


def _sum(tallies: Sequence[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.add(tally)
    return total


def _cells(row: Mapping[str, Any]) -> str:
    efficiency = "" if row["efficiency"] is None else f"{row['efficiency']:.1%}"
    cells = (
        f"{row['ratio']:.2f}",
        f"{min(row['ratios']):.2f}",
        f"{max(row['ratios']):.2f}",
        f"{row['decode_ratio']:.2f}",
        f"{row['tau']:.2f}",
        f"{row['tokens_per_second']:.1f}",
        f"{row['host_ms_per_round']:.2f}",
        f"{row['draft_ms_per_round']:.3f}",
        efficiency,
    )
    return f"{' '.join(f'{c:>8}' for c in cells)} {row['identical']}/{row['prompts']}"
