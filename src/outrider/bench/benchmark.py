"""A whole benchmark: what is compared, and the measuring of it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from outrider.bench.base import Case, HeldWeights, Report, Runner
from outrider.bench.contestants import NO_PEERS, Contestants
from outrider.bench.drafter_sets import DrafterSet
from outrider.bench.judge import Judge
from outrider.bench.log import Log
from outrider.bench.options import BenchOptions
from outrider.bench.outcome import build_report
from outrider.bench.own import OwnRunner, OwnTarget
from outrider.bench.pace import Progress, Step
from outrider.bench.plan import BenchPrompt, Plan, unique_names
from outrider.bench.setup import Setup
from outrider.bench.turns import TurnTaker
from outrider.engine.measure import Clock
from outrider.engine.request import check_prompt
from outrider.errors import OptionError
from outrider.machine import Machine, this_machine
from outrider.sampling.params import SamplingParams
from outrider.workload.encode import encode_workload_prompt
from outrider.workload.files import WorkloadPrompt

_MOST_MEASURING = 0.1  # of the time that was given


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Targets of one model, by their weights, and what is to be measured of them."""

    target: str
    own: Sequence[OwnTarget]
    """The target with each type of weights, then the models that stand in its place."""
    options: BenchOptions
    workload: Sequence[WorkloadPrompt]
    workload_name: str
    peers: Contestants = NO_PEERS
    command: str = ""
    measure_s: float = 30.0
    clock: Clock = time.perf_counter
    progress: Progress = lambda _: None

    def run(self, folder: Path) -> Report:
        """Measure what is not in the folder's log yet, and return the report of all of it.

        Raises OptionError and PromptError for a wrong request, and OptionError for a folder that
        holds another benchmark; no work is done before.
        """
        plan = self.plan()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with Log.open(folder, self._made_with(plan), self._setup(plan), now=now) as log:
            self._measure_costs(log)
            taker = TurnTaker(
                plan,
                log,
                partial(self._build, longest=plan.longest),
                clock=self.clock,
                max_seconds=None if (most := self.options.max_minutes) is None else 60 * most,
                progress=self.progress,
            )
            had_time = taker.run()
            Judge(plan, log, self.own, self.progress).run()
            failures = tuple(taker.failures.values())
            return build_report(log, failures, None if had_time else self.options.max_minutes)

    def plan(self) -> Plan:
        """Return what is to be done; raises OptionError and PromptError."""
        if not self.workload:
            raise OptionError("the workload holds no prompts")
        SamplingParams(max_new_tokens=self.options.max_new_tokens)  # refuses a wrong length
        own = [case for one in self.own for case in self._cases(one)]
        return Plan(
            cases=(*own, *self.peers.cases),
            prompts=self._prompts(),
            repeats=self.options.repeats,
            max_new_tokens=self.options.max_new_tokens,
            most_processes=self.options.peer_processes,
        )

    def _cases(self, one: OwnTarget) -> dict[Case, DrafterSet]:
        return self.options.own_cases(one.weights, one.model)

    def _setup(self, plan: Plan) -> Setup:
        return Setup(
            target=self.target,
            workload=self.workload_name,
            plan=plan,
            command=self.command,
            machine=self._machine(),
            passes=tuple(one.description for one in self.own),
            notes=self.peers.notes,
            held=tuple(HeldWeights(one.model, one.weights, one.weight_bytes) for one in self.own),
        )

    def _prompts(self) -> tuple[BenchPrompt, ...]:
        """Return the prompts as ids; what could fail later fails here."""
        loaded = self.own[0].loaded
        found = []
        names = unique_names([prompt.id for prompt in self.workload])
        for name, prompt in zip(names, self.workload, strict=True):
            ids = encode_workload_prompt(prompt, loaded.tokenizer)
            for one in self.own:
                check_prompt(ids, one.meter.as_target)
            found.append(BenchPrompt(name, prompt.task, ids))
        return tuple(found)

    def _build(self, case: Case, longest: int) -> Runner:
        for one in self.own:
            drafters = self._cases(one).get(case)
            if drafters is not None:
                return OwnRunner(case, one, drafters)
        assert self.peers.build is not None
        return self.peers.build(case, longest)

    def _made_with(self, plan: Plan) -> dict[str, Any]:
        """Return what must be the same for records to be compared."""
        options = self.options
        machine = self._machine()
        return {
            "target": self.target,
            "drafters": ",".join(one.text for one in options.drafter_sets),
            "workload": self.workload_name,
            "prompts": len(plan.prompts),
            "prompt_ids": _digest([[p.name, p.task, p.ids] for p in plan.prompts]),
            "temperature": ",".join(f"{one:g}" for one in options.temperatures),
            "batch": ",".join(map(str, options.batches)),
            "rules": ",".join(options.rules),
            **({"lossy": ",".join(map(str, options.lossy))} if options.lossy else {}),
            "max_new_tokens": options.max_new_tokens,
            "repeats": options.repeats,
            "passes": [one.description for one in self.own],
            "processor": machine.processor,
            "threads": machine.threads,
            "accelerator": machine.accelerator,
            "versions": machine.versions,
            **self.peers.made_with,
        }

    def _machine(self) -> Machine:
        return this_machine(self.own[0].device)

    def _measure_costs(self, log: Log) -> None:
        """Measure passes, unless the log holds what they cost."""
        seconds = self.measure_s
        if self.options.max_minutes is not None:
            seconds = min(seconds, _MOST_MEASURING * 60 * self.options.max_minutes)
        for one in self.own:
            points = tuple(point for point in log.costs if point.held == one.held)
            if not points:
                points = one.measure(
                    seconds / len(self.own), lambda text: self.progress(Step(text))
                )
                log.add_costs(points)
            one.points = points


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]
