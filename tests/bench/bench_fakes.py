"""Benchmarks without models: plans, runners on a clock of their own, records made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrider.bench.base import Case, Counters, Decoded, PassCount, Record, Runner
from outrider.bench.log import Log
from outrider.bench.peers import LoadedPeer, PeerOptions, PeerRunner
from outrider.bench.plan import BenchPrompt, Plan
from outrider.bench.setup import Setup
from outrider.machine import Machine
from outrider.types import TokenIds
from support.simulated import SimulatedClock

PLAIN = Case("none")
SUFFIX = Case("suffix")
NGRAM = Case("ngram")
MACHINE = Machine("some processor", 2, 1, None, {"torch": "1"})


def make_prompts(*tasks: str) -> tuple[BenchPrompt, ...]:
    """Return a prompt of each task named, called a, b, c, ..."""
    return tuple(
        BenchPrompt("abcdefghijkl"[i], task, (i + 1, i + 2)) for i, task in enumerate(tasks)
    )


def make_plan(
    *cases: Case, tasks: Sequence[str] = ("chat", "edit"), repeats: int = 2, tokens: int = 4
) -> Plan:
    """Return a plan over prompts of the tasks."""
    return Plan(cases or (PLAIN, SUFFIX, NGRAM), make_prompts(*tasks), repeats, tokens)


def open_log(folder: Path, **made_with: object) -> Log:
    """Return the log in a folder."""
    setup = Setup("tiny", "some.jsonl", make_plan(), "outrider bench", MACHINE, ("As it is.",))
    return Log.open(folder, made_with, setup, now="2030-01-02T03:04:05+00:00")


@dataclass
class FakeRunner(Runner):
    """Says what depends on prompts and seed alone, and takes a second a token by its clock."""

    case: Case
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    decoded: list[tuple[tuple[int, ...], ...]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    fault: Callable[[int], None] = lambda count: None
    """Called with the number of times it has decoded, before it does so again."""
    ready: Iterator[bool] = field(default_factory=lambda: iter(()))
    """What it says when it is asked whether it can decode; True afterwards."""

    @property
    def is_ready(self) -> bool:
        return next(self.ready, True)

    def start(self) -> None:
        self.events.append(f"start {self.case.drafter}")

    def decode(self, prompts: Sequence[TokenIds], *, max_new_tokens: int, seed: int) -> Decoded:
        self.fault(len(self.decoded))
        self.events.append(self.case.drafter)
        self.decoded.append(tuple(tuple(ids) for ids in prompts))
        self.clock.now += max_new_tokens
        answers = tuple(
            tuple((sum(ids) + seed + i) % 64 for i in range(max_new_tokens)) for ids in prompts
        )
        return Decoded(answers, float(max_new_tokens))

    def peak_memory(self) -> int | None:
        return 1000 * len(self.decoded)

    def versions(self) -> dict[str, str]:
        return {} if self.case.engine == "outrider" else {self.case.engine: "1.0", "torch": "2"}

    def close(self) -> None:
        self.events.append(f"close {self.case.drafter}")


def build_peer(case: Case, **options: Any) -> PeerRunner:
    """Return the runner of a peer's case, with a process of its own."""
    return PeerRunner(case, LoadedPeer(case, PeerOptions(**{"batch": case.batch} | options)))


def make_record(
    case: Case = PLAIN,
    seconds: float = 1.0,
    answers: Sequence[Sequence[int]] = ((1, 2, 3, 4),),
    *,
    repeat: int = 0,
    task: str = "chat",
    prompts: Sequence[str] = ("a",),
    counters: Counters | None = None,
    run: int = 0,
) -> Record:
    """Return a record of one prompt unless told otherwise."""
    decoded = Decoded(tuple(map(tuple, answers)), seconds, counters)
    return Record(case, repeat, task, tuple(prompts), decoded, run=run)


def plain_counters(tokens: int, *, pass_s: float = 0.1, prefill_s: float = 0.2) -> Counters:
    """Return what plain decoding counts: the prompt's pass, and one a token after the first."""
    passes = tokens - 1
    return Counters(
        rounds=tokens,
        prefill_s=prefill_s,
        score_s=passes * pass_s,
        host_s=0.01 * tokens,
        passes=(PassCount(1, 1, passes, 100.0 * passes, passes * pass_s),),
    )
