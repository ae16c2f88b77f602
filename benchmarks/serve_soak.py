"""A server under thousands of random requests: no fault, nothing left over, every answer exact.

Run `python benchmarks/serve_soak.py`; about half an hour for the default model on two cores. Many
requests are under way at a time: with random options, streamed or not, from clients that go away,
malformed, too long, cut off. Afterwards every answer is compared with what the library says to it
alone, without drafts. Prints counts, and one JSON document as the last line; exit code 1 if
anything was wrong. Ctrl-C ends the sending, and again the comparing; what there is is reported.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil  # type: ignore[import-untyped]

import outrider
from outrider.decoder import Decoder
from outrider.server.settings import ServerSettings
from serve_client import Client, Outcome
from serve_common import Local, first_message, gauges, local_server, workload
from serve_offline import Said, answers_offline
from serve_requests import Asked, Drawer

_PATIENCE_S = 600.0
_TELL_EVERY = 50  # requests
_LOGPROB = 1e-3  # what rounding in passes of other shapes may make of a log-probability


class Interrupts:
    """Counts Ctrl-C instead of ending at it."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *_: object) -> None:
        """Take one as a signal handler does."""
        self.count += 1


@dataclass(slots=True)
class Run:
    """All that came of a soak."""

    outcomes: list[Outcome] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    """What the process held after each quarter of the requests, the first left out."""
    faults: list[str] = field(default_factory=list)
    unsent: int = 0


async def send_all(
    url: str,
    requests: Iterator[Asked],
    interrupts: Interrupts,
    *,
    count: int,
    at_once: int,
    seconds: float,
) -> Run:
    """Send requests, so many at once, until there are no more, or the time is up."""
    run, quarter = Run(), max(1, count // 4)
    deadline = time.monotonic() + seconds
    limits = httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    async with httpx2.AsyncClient(base_url=url, timeout=_PATIENCE_S, limits=limits) as http:
        client = Client(http, url)

        async def work() -> None:
            for asked in requests:
                if time.monotonic() > deadline or interrupts.count:
                    run.unsent += 1
                    continue
                run.outcomes.append(await client.ask(asked))
                done = len(run.outcomes)
                if done % quarter == 0:
                    run.megabytes.append(_megabytes())
                if done % _TELL_EVERY == 0:
                    print(f"{done} of {count} requests", file=sys.stderr, flush=True)

        await asyncio.gather(*(work() for _ in range(at_once)))
    return run


def _megabytes() -> float:
    gc.collect()
    return float(psutil.Process().memory_info().rss) / 2**20


def at_rest(decoder: Decoder, server: Local) -> list[str]:
    """Return what is wrong with a server that nobody asks anything any more, a line each."""
    with httpx2.Client(base_url=server.url, timeout=_PATIENCE_S) as http:
        deadline = time.monotonic() + _PATIENCE_S
        while (found := _busy(gauges(http.get("/metrics").text))) and time.monotonic() < deadline:
            time.sleep(0.05)
        values = gauges(http.get("/metrics").text)
        health = http.get("/health").status_code
    faults = [f"{name} is {value:g} at rest" for name, value in found.items()]
    if health != 200:
        faults.append(f"/health answers with {health}")
    ended = sum(v for name, v in values.items() if name.startswith("outrider_ended_total{"))
    if ended != values["outrider_submitted_total"]:
        submitted = values["outrider_submitted_total"]
        faults.append(f"{submitted:g} requests were submitted, and {ended:g} ended")
    return faults + _left_over(decoder, server)


def _left_over(decoder: Decoder, server: Local) -> list[str]:
    """Return what a scheduler at rest holds beyond the caches it may keep."""
    scheduler, most = server.service.worker.scheduler, server.service.settings.max_prefixes
    faults = scheduler.audit()
    if len(scheduler.sequences) > most:
        faults.append(f"{len(scheduler.sequences)} caches are kept, and {most} may be")
    target: Any = decoder.engine.target
    if set(target._sequences) != scheduler.sequences:
        held, known = len(target._sequences), len(scheduler.sequences)
        faults.append(f"{held} sequences are open, and {known} are known to the scheduler")
    return faults


def _busy(values: dict[str, float]) -> dict[str, float]:
    names = [f"outrider_{n}" for n in ("queue_length", "active_requests", "reading_requests")]
    return {name: values[name] for name in names if values[name]}


def compare(
    plain: Decoder, outcomes: Sequence[Outcome], interrupts: Interrupts
) -> tuple[int, list[str]]:
    """Return how many answers were compared with the library's, and what differs."""
    compared, faults = 0, []
    owed = [one for one in outcomes if one.said is not None and one.asked.is_right]
    for place, outcome in enumerate(owed):
        if interrupts.count > 1:
            faults.append(f"{len(owed) - place} of {len(owed)} requests were not compared")
            break
        if place % _TELL_EVERY == 0:
            print(f"{place} of {len(owed)} compared", file=sys.stderr, flush=True)
        expected, tokens = answers_offline(plain, outcome.asked.body)
        compared += len(expected)
        fault = _difference(outcome, expected, tokens)
        if fault is not None:
            faults.append(f"request {outcome.asked.number}: {fault}: {outcome.asked.raw.decode()}")
    return compared, faults


def _difference(outcome: Outcome, expected: Sequence[Said], tokens: int) -> str | None:
    assert outcome.said is not None
    if len(outcome.said) != len(expected):
        return f"{len(outcome.said)} answers and not {len(expected)}"
    if outcome.tokens not in (None, tokens):
        return f"usage tells of {outcome.tokens} tokens, and there are {tokens}"
    for one, other in zip(outcome.said, expected, strict=True):
        if (one.text, one.finish_reason) != (other.text, other.finish_reason):
            return f"{one.text!r} ({one.finish_reason}), not {other.text!r} ({other.finish_reason})"
        if not _are_close(one, other):
            return f"log-probabilities {one.logprobs}, not {other.logprobs}"
    return None


def _are_close(one: Said, other: Said) -> bool:
    if one.logprobs is None or other.logprobs is None:
        return True  # a request for no token has those of its prompt alone
    # Those of an echoed prompt come first.
    ours = one.logprobs[len(one.logprobs) - len(other.logprobs) :]
    return len(ours) == len(other.logprobs) and all(
        math.isclose(a, b, abs_tol=_LOGPROB) for a, b in zip(ours, other.logprobs, strict=True)
    )


def soak(
    decoder: Decoder, options: argparse.Namespace, interrupts: Interrupts | None = None
) -> dict[str, Any]:
    """Send all requests to a server of this decoder, and return the report."""
    interrupts = interrupts or Interrupts()
    settings = ServerSettings(
        model="soaked",
        max_body_bytes=2**16,
        max_prompt_tokens=options.max_prompt_tokens,
        max_new_tokens=options.tokens,
        max_queue=options.max_queue,
        prefill_rows=options.prefill_rows,
        max_prefixes=options.prefix_caches,
        drain_seconds=5.0,
    )
    prompts = workload(options.prompts, options.limit)
    with local_server(lambda: decoder, settings) as server:
        drawer = Drawer(
            model=settings.model,
            texts=[first_message(prompt)[-1]["content"][: options.letters] for prompt in prompts],
            drafters=[name for name in server.service.preparer.drafters if name != "prediction"],
            max_tokens=options.tokens,
            max_prompt_tokens=options.max_prompt_tokens,
            max_body_bytes=settings.max_body_bytes,
            has_grammars=options.grammars,
            seed=options.seed,
        )
        requests = (drawer.draw(number) for number in range(options.requests))
        run = asyncio.run(
            send_all(
                server.url,
                requests,
                interrupts,
                count=options.requests,
                at_once=options.at_once,
                seconds=options.seconds,
            )
        )
        run.faults += at_rest(decoder, server)
    compared, different = compare(decoder.without_drafter(), run.outcomes, interrupts)
    return _judged(run, options) | {"compared": compared, "faults": run.faults + different}


def _judged(run: Run, options: argparse.Namespace) -> dict[str, Any]:
    """Return what there is to tell but for the comparison, and add to the run's faults."""
    run.faults += [
        f"request {outcome.asked.number} ({outcome.asked.kind}): {outcome.fault}: "
        f"{outcome.asked.raw[:400]!r}"
        for outcome in run.outcomes
        if outcome.fault is not None
    ]
    if run.unsent:
        run.faults.append(f"{run.unsent} requests were not sent")
    growth = run.megabytes[-1] - run.megabytes[0] if run.megabytes else 0.0
    if growth > options.most_growth:
        run.faults.append(f"memory grew by {growth:.0f} MiB after the first quarter")
    by_kind: dict[str, Counter[str]] = {}
    for outcome in run.outcomes:
        names = [str(status) for status in outcome.statuses] or ["gone"]
        by_kind.setdefault(outcome.asked.kind, Counter()).update(names)
    return {
        "requests": len(run.outcomes),
        "seed": options.seed,
        "statuses": {kind: dict(sorted(counts.items())) for kind, counts in by_kind.items()},
        "memory_mib": [round(value) for value in run.megabytes],
    }


def parser() -> argparse.ArgumentParser:
    """Return what reads the options."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    made.add_argument("--target", default="smollm2-135m")
    made.add_argument("--drafter", default="suffix,eagle")
    made.add_argument("--dtype", default="float32")
    made.add_argument("--numerics", default="fast", choices=("fast", "invariant"))
    made.add_argument("--max-batch", type=int, default=8)
    made.add_argument("--max-queue", type=int, default=16)
    made.add_argument("--max-prompt-tokens", type=int, default=1000)
    made.add_argument("--prefill-rows", type=int, default=128)
    made.add_argument("--prefix-caches", type=int, default=8)
    made.add_argument("--prompts", type=Path, default=None, help="a workload; ours by default")
    made.add_argument("--limit", type=int, default=None, help="only the first prompts of it")
    made.add_argument("--letters", type=int, default=300, help="at most so many of each prompt")
    made.add_argument("--requests", type=int, default=2000)
    made.add_argument("--at-once", type=int, default=24, help="requests under way at a time")
    made.add_argument("--tokens", type=int, default=24, help="most tokens of an answer")
    made.add_argument("--seconds", type=float, default=3600.0, help="send no more after this time")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument(
        "--most-growth",
        type=float,
        default=256.0,
        help="MiB that the process may grow by after the first quarter of the requests",
    )
    made.add_argument("--no-grammars", dest="grammars", action="store_false")
    return made


def print_report(report: dict[str, Any]) -> None:
    """Print a report for people, and as JSON on the last line."""
    print(f"{'kind':12} statuses")
    for kind, counts in report["statuses"].items():
        print(f"{kind:12} " + ", ".join(f"{status}: {n}" for status, n in counts.items()))
    print(f"{report['compared']} answers compared, {len(report['faults'])} faults")
    print(f"memory (MiB) by quarters: {report['memory_mib']}")
    for fault in report["faults"]:
        print(f"FAULT {fault}")
    print(json.dumps(report))


def main() -> None:
    """Run the recipe."""
    options = parser().parse_args()
    decoder = outrider.load(
        options.target,
        drafter=f"{options.drafter},prediction",
        dtype=options.dtype,
        numerics=options.numerics,
        max_batch=options.max_batch,
    )
    interrupts = Interrupts()
    signal.signal(signal.SIGINT, interrupts)
    report = soak(decoder, options, interrupts)
    print_report(report)
    sys.exit(1 if report["faults"] else 0)


if __name__ == "__main__":
    main()
