"""Judging the answers of a benchmark once they are decoded: by the target, and model by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outrider.bench.base import Case, Divergence, Judged, Record
from outrider.bench.judging import diverge, log_likelihood
from outrider.bench.log import Log
from outrider.bench.losses import original_of, originals
from outrider.bench.own import OwnTarget
from outrider.bench.pace import Progress, Step
from outrider.bench.plan import Plan, TurnKey


@dataclass(slots=True)
class Judge:
    """Says of what was decoded what the target thinks of it, as far as the log does not yet."""

    plan: Plan
    log: Log
    own: Sequence[OwnTarget]
    """The target first, with its first type of weights."""
    progress: Progress = lambda _: None
    _prompts: Mapping[str, tuple[int, ...]] = field(init=False)
    _known: dict[tuple[str, str, tuple[int, ...]], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._prompts = {prompt.name: prompt.ids for prompt in self.plan.prompts}

    def run(self) -> None:
        """Judge all records of cases that change the answer, and of what they stand beside."""
        compared = originals(self.plan.cases, self.own[0].weights)
        judged = [r for r in self.log.records if r.case.changes_answer or r.case in compared]
        for record in judged:
            if TurnKey.of(record) not in self.log.judged:
                self.progress(Step(f"judging {record.case.label}: {record.prompts[0]}"))
                self.log.add_judged(self._judge(record))
        if compared:
            for other in self.own:
                if other.model:
                    self._measure(other, _first_answers(self.log.records, compared[0]))

    def _judge(self, record: Record) -> Judged:
        held = original_of(record.case, self.own[0].weights).held
        (judge,) = (one for one in self.own if one.held == held and not one.model)
        likelihoods = []
        for name, ids in zip(record.prompts, record.decoded.answers, strict=True):
            key = (held, name, ids)  # greedy answers are the same in every repeat
            if key not in self._known:
                target = judge.meter.as_target
                self._known[key] = log_likelihood(target, self._prompts[name], ids)
            likelihoods.append(self._known[key])
        return Judged(record.case, record.repeat, record.task, record.prompts, tuple(likelihoods))

    def _measure(self, other: OwnTarget, answers: Mapping[str, tuple[int, ...]]) -> None:
        """Hold a model's distributions against the target's, along the target's own answers."""
        done = {one.prompt for one in self.log.divergences if one.model == other.model}
        target = self.own[0].meter.as_target
        for name, ids in answers.items():
            if name in done:
                continue
            self.progress(Step(f"comparing {other.model}: {name}"))
            nats, same = diverge(target, other.meter.as_target, self._prompts[name], ids)
            self.log.add_divergence(Divergence(other.model, name, len(ids), nats, same))


def _first_answers(records: Sequence[Record], case: Case) -> dict[str, tuple[int, ...]]:
    """Return the first answer of a case to each prompt."""
    found: dict[str, tuple[int, ...]] = {}
    for record in records:
        if record.case == case:
            for name, ids in zip(record.prompts, record.decoded.answers, strict=True):
                found.setdefault(name, ids)
    return found
