"""A tuning run: what passes cost, what each drafter gains, and the profile that comes of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from outrider.decoder import Decoder
from outrider.engine.costs import PassCosts
from outrider.engine.measure import Clock, PassPoint, Progress, measure_passes
from outrider.engine.request import check_prompt
from outrider.errors import OptionError
from outrider.machine import this_machine
from outrider.profile import Profile, describe_subject
from outrider.tuning.tally import DrafterResult, Run, Tally
from outrider.workload.encode import encode_workload_prompt
from outrider.workload.files import WorkloadPrompt

PLAIN = "none"
_WARM_UP_TOKENS = 8
_WORTH = 1.02  # a drafter that gains less is not worth recommending


@dataclass(frozen=True, slots=True)
class TuneReport:
    """What a tuning run found."""

    profile: Profile
    passes: tuple[PassPoint, ...]
    results: tuple[DrafterResult, ...]
    """One row a drafter; plain decoding comes first, all drafters together last."""
    recommended: str
    """The spec that was fastest, "none" if plain decoding was."""

    @property
    def is_identical(self) -> bool:
        """Whether every answer of every drafter had the tokens of plain decoding."""
        return all(result.is_identical for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "subject": asdict(self.profile.subject),
            "machine": asdict(self.profile.machine),
            "passes": [asdict(point) for point in self.passes],
            "results": [result.to_dict() for result in self.results],
            "recommended": self.recommended,
            "identical": self.is_identical,
        }


def tune(
    decoder: Decoder,
    workload: Sequence[WorkloadPrompt],
    *,
    max_new_tokens: int = 64,
    seconds: float = 30.0,
    clock: Clock = time.perf_counter,
    progress: Progress = lambda _: None,
) -> TuneReport:
    """Measure the passes of a decoder's target for `seconds`, then try its drafters on prompts.

    Every prompt is decoded plainly, with each drafter alone and with all of them, in turns that
    go round, so that a machine whose speed drifts is unfair to nobody. `progress` is told what is
    going on. Raises OptionError for a workload without prompts or a drafter that needs a
    prediction, and PromptError for a prompt that the model cannot take.
    """
    prompts = _checked(decoder, workload, max_new_tokens)
    points = measure_passes(
        decoder.engine.target,
        max_batch=decoder.engine.max_batch,
        seconds=seconds,
        clock=clock,
        progress=progress,
    )
    costs = PassCosts.measured(
        (p.computed, p.attended, p.seconds, p.batch) for p in points
    ).to_dict()
    contenders = _contenders(decoder, costs)
    runs = _Workload(prompts, max_new_tokens, clock)
    results = _try_out(contenders, runs, [prompt.id for prompt in workload], progress)
    return TuneReport(
        profile=_profile(decoder, costs, contenders, results),
        passes=points,
        results=results,
        recommended=best_drafter(results),
    )


def _try_out(
    contenders: dict[str, Decoder], runs: _Workload, prompts: Sequence[str], progress: Progress
) -> tuple[DrafterResult, ...]:
    """Let every contender decode every prompt, named in `prompts`; who begins goes round."""
    for contender in contenders.values():  # the first passes of a process are slow
        runs.decode(contender, 0, _WARM_UP_TOKENS)
    tallies = {name: Tally(name) for name in contenders}
    names = list(contenders)
    for index, prompt in enumerate(prompts):
        progress(f"prompt {index + 1} of {len(prompts)}: {prompt}")
        turn = index % len(names)
        order = names[turn:] + names[:turn]
        found = {name: runs.decode(contenders[name], index, runs.max_new_tokens) for name in order}
        for name, run in found.items():
            tallies[name].add(prompt, run, found[PLAIN])
    return tuple(tally.result() for tally in tallies.values())


@dataclass(frozen=True, slots=True)
class _Workload:
    """Prompts as ids, decoded on demand."""

    prompts: Sequence[tuple[int, ...]]
    max_new_tokens: int
    clock: Clock

    def decode(self, decoder: Decoder, index: int, tokens: int) -> Run:
        """Decode one prompt, with the model's own sampling options and the same seed each time."""
        tokens = min(tokens, self.max_new_tokens)
        started = self.clock()
        result = decoder.generate(self.prompts[index], seed=index, max_new_tokens=tokens)
        return Run(result, self.clock() - started)


def _checked(
    decoder: Decoder, workload: Sequence[WorkloadPrompt], max_new_tokens: int
) -> list[tuple[int, ...]]:
    """Return the ids of all prompts; whatever could fail later fails here, before any work."""
    if not workload:
        raise OptionError("the workload holds no prompts")
    decoder.require_text()
    for drafter in decoder.engine.drafters:
        if drafter.needs_prediction:
            raise OptionError(
                f"the {drafter.name} drafter copies the output that is expected of one request: "
                "a workload has none; tune without it"
            )
        if drafter.needs_grammar:
            raise OptionError(
                f"the {drafter.name} drafter drafts what a request's grammar forces: a workload "
                "has none; tune without it"
            )
    decoder.default_params.with_options(max_new_tokens=max_new_tokens)
    prompts = [encode_workload_prompt(prompt, decoder.tokenizer) for prompt in workload]
    for ids in prompts:
        check_prompt(ids, decoder.engine.target)
    return prompts


def _contenders(decoder: Decoder, costs: dict[str, Any]) -> dict[str, Decoder]:
    """Return plain decoding, each drafter alone, and all of them if there are several."""
    profile = {"pass": costs, "drafters": {}}
    drafters = decoder.engine.drafters
    # An engine gives drafters of one name different ones; a spec says more, where there is one.
    names = [
        decoder.specs.get(drafter, name)
        for name, drafter in zip(decoder.engine.to_profile()["drafters"], drafters, strict=True)
    ]
    found = {PLAIN: decoder.using((), profile=profile)}
    for name, drafter in zip(names, drafters, strict=True):
        found[name] = decoder.using((drafter,), profile=profile)
    if len(drafters) > 1:
        found[",".join(names)] = decoder.using(drafters, profile=profile)
    return found


def _profile(
    decoder: Decoder,
    costs: dict[str, Any],
    contenders: dict[str, Decoder],
    results: Sequence[DrafterResult],
) -> Profile:
    """Put together what an engine can begin with: of each drafter what it showed by itself."""
    learnt: dict[str, Any] = {}
    for contender in contenders.values():
        drafters = contender.engine.drafters
        if len(drafters) == 1 and drafters[0] in decoder.specs:
            (learnt[decoder.specs[drafters[0]]],) = contender.engine.to_profile()[
                "drafters"
            ].values()
    target: Any = decoder.engine.target
    return Profile(
        subject=describe_subject(decoder.loaded, target),
        machine=this_machine(target.device),
        passes=costs,
        drafters=learnt,
        results=tuple(result.to_dict() for result in results),
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def best_drafter(results: Sequence[DrafterResult]) -> str:
    """Return the spec that was fastest without changing a token, "none" if none gained enough."""
    worth = [row for row in results if row.speedup >= _WORTH and row.is_identical]
    return max(worth, key=lambda row: row.speedup).drafter if worth else PLAIN
