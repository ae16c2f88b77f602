"""The server under load: throughput and latencies with speculation over those without.

Run `python benchmarks/serve_load.py` on an idle machine; two cores take a quarter of an hour.
Two servers of `outrider serve` stand side by side, one with drafters and one without. So many
clients at a time send the same requests, all greedy and streamed over loopback, to the one and then
to the other, which waits meanwhile; the order turns from repeat to repeat. Every answer to a prompt
must be the same, whoever drafts and however many clients there are. Prints a table, and one JSON
document as the last line; exit code 1 if a text differs.

Nothing is kept of an answer that later ones could be copied from, so prompts may come again.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import httpx2

import outrider
from outrider.workload.files import WorkloadPrompt
from serve_common import CHAT, first_message, spawned_server, stream_events, workload

Mode: TypeAlias = Literal["on", "off"]

LEAST_TOKENS = 400
"""No figure is given for fewer tokens, of all answers of a cell together."""
LEAST_ANSWER = 8
"""Answers of fewer tokens have no time per output token."""

_PATIENCE_S = 1800.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as a client saw it come; times are seconds."""

    prompt: str
    """What the workload calls its prompt."""
    text: str
    tokens: int
    rounds: int
    first_s: float
    """From the request to its first token."""
    later_s: float
    """From the first token to the last."""

    @property
    def per_token_s(self) -> float | None:
        """Seconds a token after the first; None for an answer that is too short."""
        return self.later_s / (self.tokens - 1) if self.tokens >= LEAST_ANSWER else None


@dataclass(frozen=True, slots=True)
class Cell:
    """The requests of one mode, sent by so many clients in one repeat."""

    clients: int
    mode: Mode
    answers: tuple[Answer, ...]
    seconds: float

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        return sum(answer.tokens for answer in self.answers)

    @property
    def throughput(self) -> float:
        """Tokens a second, of all clients together."""
        return self.tokens / self.seconds


class Load:
    """Sends chats to a server, some at a time."""

    def __init__(self, http: httpx2.AsyncClient, options: argparse.Namespace) -> None:
        self._http = http
        self._options = options

    async def cell(self, prompts: Sequence[WorkloadPrompt], clients: int, mode: Mode) -> Cell:
        """Send all prompts, so many at a time; returns the answers in their order."""
        answers: dict[int, Answer] = {}
        queue = iter(enumerate(prompts))

        async def client() -> None:
            for place, prompt in queue:
                answers[place] = await self._ask(prompt)

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        seconds = time.perf_counter() - started
        return Cell(clients, mode, tuple(answers[i] for i in range(len(prompts))), seconds)

    async def _ask(self, prompt: WorkloadPrompt) -> Answer:
        body = {
            "model": self._options.target,
            "messages": first_message(prompt),
            "max_tokens": self._options.tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        sent = time.perf_counter()
        first = last = sent
        texts: list[str] = []
        usage: dict[str, Any] = {}
        async with self._http.stream("POST", CHAT, json=body) as response:
            if response.status_code != 200:
                raise RuntimeError(f"status {response.status_code}: {await response.aread()!r}")
            async for chunk in stream_events(response):
                if chunk["choices"]:
                    last = time.perf_counter()
                    first = last if first == sent else first
                    texts.append(chunk["choices"][0]["delta"].get("content", ""))
                else:
                    usage = chunk["usage"]
        rounds = usage["speculation"]["rounds"]
        tokens = usage["completion_tokens"]
        return Answer(prompt.id, "".join(texts), tokens, rounds, first - sent, last - first)


def measure(options: argparse.Namespace, prompts: Sequence[WorkloadPrompt]) -> list[Cell]:
    """Measure all cells there is time for, on one server of each mode."""
    # One after the other: a server looks at what passes cost here while it starts.
    with (
        spawned_server(_serving(options, "on")) as with_drafts,
        spawned_server(_serving(options, "off")) as without,
    ):
        return asyncio.run(_cells(options, prompts, {"on": with_drafts, "off": without}))


async def _cells(
    options: argparse.Namespace, prompts: Sequence[WorkloadPrompt], urls: Mapping[Mode, str]
) -> list[Cell]:
    deadline = time.monotonic() + options.seconds
    cells: list[Cell] = []
    async with _client(urls["on"], options) as on, _client(urls["off"], options) as off:
        loads: dict[Mode, Load] = {"on": Load(on, options), "off": Load(off, options)}
        for mode in loads:
            await loads[mode].cell(prompts[: options.warm_up], 1, mode)
        for repeat, clients in itertools.product(range(options.repeats), options.clients):
            if time.monotonic() > deadline:
                print(f"no time: repeat {repeat + 1} with {clients} clients", file=sys.stderr)
                continue
            modes: tuple[Mode, Mode] = ("on", "off") if repeat % 2 == 0 else ("off", "on")
            count = max(options.requests, options.each * clients)
            chosen = list(itertools.islice(itertools.cycle(prompts), count))
            for mode in modes:
                cells.append(await loads[mode].cell(chosen, clients, mode))
            rates = ", ".join(f"{cell.mode} {cell.throughput:.1f} tokens/s" for cell in cells[-2:])
            text = f"repeat {repeat + 1}, {clients} clients, speculation {rates}"
            print(text, file=sys.stderr, flush=True)
    return cells


def _client(url: str, options: argparse.Namespace) -> httpx2.AsyncClient:
    most = max(options.clients)
    limits = httpx2.Limits(max_connections=most, max_keepalive_connections=most)
    return httpx2.AsyncClient(base_url=url, timeout=_PATIENCE_S, limits=limits)


def _serving(options: argparse.Namespace, mode: Mode) -> list[str]:
    """Return what `outrider serve` is told; prompts are never found in a cache."""
    most = max(options.clients)
    arguments = ["--target", options.target, "--dtype", options.dtype]
    arguments += ["--drafter", options.drafter if mode == "on" else "none"]
    arguments += ["--numerics", options.numerics]
    arguments += ["--max-batch", str(options.max_batch or most), "--max-queue", str(most)]
    arguments += ["--prefix-caches", "0"]
    if options.device is not None:
        arguments += ["--device", options.device]
    if options.compile is not None:
        arguments.append("--compile" if options.compile else "--no-compile")
    return arguments


# -- the report ------------------------------------------------------------------------------------


def report(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the figures of all repeats, and how many texts are equal."""
    levels = sorted({cell.clients for cell in cells})
    pairs = list(_pairs(cells))
    ratios = {str(level): _ratio(pairs, level) for level in levels}
    medians = [found["median"] for found in ratios.values() if found is not None]
    texts, different = _compared(cells)
    return {
        "cells": [
            _figures([cell for cell in cells if (cell.clients, cell.mode) == (level, mode)])
            for level in levels
            for mode in get_args(Mode)
        ],
        "ratios": ratios,
        "lowest_ratio": min(medians, default=None),
        "texts": texts,
        "different": different,
    }


def _compared(cells: Sequence[Cell]) -> tuple[int, int]:
    """Return how many answers were compared with the first to their prompt, and how many differ."""
    first: dict[str, str] = {}
    same = [
        first.setdefault(answer.prompt, answer.text) == answer.text
        for cell in cells
        for answer in cell.answers
    ]
    return len(same) - len(first), same.count(False)


def _pairs(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Cell]]:
    """Yield the two cells that were measured next to each other, that with speculation first."""
    for first, second in zip(cells[::2], cells[1::2], strict=True):
        yield (first, second) if first.mode == "on" else (second, first)


def _ratio(pairs: Sequence[tuple[Cell, Cell]], clients: int) -> dict[str, Any] | None:
    """Return throughput with speculation over that without; None for too few tokens."""
    own = [(on, off) for on, off in pairs if on.clients == clients]
    if min(min(on.tokens, off.tokens) for on, off in own) < LEAST_TOKENS:
        return None
    ratios = [on.throughput / off.throughput for on, off in own]
    return {"median": statistics.median(ratios), "runs": ratios}


def _figures(cells: Sequence[Cell]) -> dict[str, Any]:
    answers = [answer for cell in cells for answer in cell.answers]
    tokens = sum(cell.tokens for cell in cells)
    figures: dict[str, Any] = {
        "clients": cells[0].clients,
        "speculation": cells[0].mode,
        "repeats": len(cells),
        "requests": len(answers),
        "tokens": tokens,
    }
    if min(cell.tokens for cell in cells) < LEAST_TOKENS:
        return figures | {"refused": f"fewer than {LEAST_TOKENS} tokens in a repeat"}
    per_token = [found for answer in answers if (found := answer.per_token_s) is not None]
    return figures | {
        "throughput": statistics.median(cell.throughput for cell in cells),
        "acceptance_length": tokens / sum(answer.rounds for answer in answers),
        "first_token_ms": _quantiles([answer.first_s for answer in answers]),
        "per_token_ms": _quantiles(per_token),
    }


def _quantiles(seconds: Sequence[float]) -> dict[str, float] | None:
    """Return the median and the 99th percentile, the nearest value above, in milliseconds."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    at = [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.99)]
    return {"p50": 1e3 * at[0], "p99": 1e3 * at[1], "of": len(ordered)}


def print_report(found: dict[str, Any]) -> None:
    """Print a report for people, and as JSON on the last line."""
    rates, times = ("tok/s", "ratio", "from", "to", "tau"), ("ttft p50", "p99", "tpot p50", "p99")
    columns = ("clients", "spec.", *rates, *times)
    print(" ".join(f"{column:>8}" for column in columns))
    for cell in found["cells"]:
        row = [f"{cell['clients']}", cell["speculation"]]
        if "refused" in cell:
            print(" ".join(f"{value:>8}" for value in row), cell["refused"])
            continue
        ratio = found["ratios"][str(cell["clients"])]
        is_on = cell["speculation"] == "on" and ratio is not None
        spread = (ratio["median"], min(ratio["runs"]), max(ratio["runs"])) if is_on else ()
        row.append(f"{cell['throughput']:.1f}")
        row += [f"{value:.2f}" for value in spread] or [""] * 3
        row.append(f"{cell['acceptance_length']:.2f}")
        for name in ("first_token_ms", "per_token_ms"):
            quantiles = cell[name]
            row += (
                ["", ""] if quantiles is None else [f"{quantiles[q]:.1f}" for q in ("p50", "p99")]
            )
        print(" ".join(f"{value:>8}" for value in row))
    print(f"{found['texts']} texts compared, {found['different']} different; times in ms")
    if found["lowest_ratio"] is not None:
        print(f"the lowest ratio is {found['lowest_ratio']:.2f}")
    print(json.dumps(found))


def parser() -> argparse.ArgumentParser:
    """Return what reads the options."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    made.add_argument("--prompts", type=Path, default=None, help="a workload; ours by default")
    made.add_argument("--limit", type=int, default=None, help="only the first prompts of it")
    made.add_argument("--target", default="smollm2-135m")
    made.add_argument("--drafter", default="suffix,eagle")
    made.add_argument("--dtype", default="float32", help="in others texts may differ by rounding")
    made.add_argument("--device", default=None)
    made.add_argument("--numerics", default="fast", choices=("fast", "invariant"))
    made.add_argument("--compile", action=argparse.BooleanOptionalAction, default=None)
    made.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    made.add_argument("--max-batch", type=int, default=None, help="as the most clients by default")
    made.add_argument("--requests", type=int, default=15, help="at least, of each mode")
    made.add_argument("--each", type=int, default=2, help="at least, of each client")
    made.add_argument("--tokens", type=int, default=64, help="most tokens of an answer")
    made.add_argument("--warm-up", type=int, default=2, help="requests of each mode beforehand")
    made.add_argument("--repeats", type=int, default=4)
    made.add_argument("--seconds", type=float, default=780.0, help="begin nothing after this time")
    return made


def main() -> None:
    """Run the recipe."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers end with what runs them
    prompts = workload(options.prompts, options.limit)
    found = report(measure(options, prompts))
    provenance: dict[str, Any] = {"outrider": outrider.__version__, "arguments": sys.argv[1:]}
    provenance |= {"prompts": len(prompts), "cores": os.cpu_count()}
    print_report(found | {"run": provenance})
    sys.exit(1 if found["different"] else 0)


if __name__ == "__main__":
    main()
