"""How good a trained drafter is: prompts it has not seen, decoded with it and plainly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from outrider.engine.request import check_prompt
from outrider.errors import OptionError
from outrider.sampling.params import SamplingParams
from outrider.training.base import Sample
from outrider.training.score import Run, Score, Tally
from outrider.types import Rule

if TYPE_CHECKING:
    from outrider.decoder import Decoder
    from outrider.engine.result import Result
    from outrider.training.pace import Clock

Progress: TypeAlias = Callable[[str], None]

ALL = "all"
"""The task that stands for the prompts of every task."""

_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Question:
    """The ids of a prompt, and the kind of task it is."""

    ids: tuple[int, ...]
    task: str = ALL


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was measured of a drafter, and how it was driven."""

    rule: Rule
    max_draft: int | str
    max_new_tokens: int
    scores: tuple[Score, ...]
    """For each temperature that of all prompts first, then one for each task if there are any."""
    differences: tuple[str, ...] = ()
    """Prompts whose tokens are not those of plain decoding though they should be, and where."""
    error: str | None = None
    """Why the drafter was dropped somewhere, if it raised."""

    def overall(self, temperature: float) -> Score:
        """Return the score of all prompts at a temperature; raises OptionError for another."""
        for score in self.scores:
            if (score.temperature, score.task) == (temperature, ALL):
                return score
        raise OptionError(f"temperature is {temperature:g}; it was not among those measured")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        lists = {"scores": [asdict(one) for one in self.scores]}
        return asdict(self) | lists | {"differences": list(self.differences)}


def questions_from(samples: Iterable[Sample]) -> tuple[Question, ...]:
    """Return the prompts of samples; of a text without one, its first half."""
    return tuple(
        Question(sample.ids[: sample.prompt_tokens or max(1, len(sample.ids) // 2)])
        for sample in samples
    )


def evaluate(
    decoder: Decoder,
    plain: Decoder,
    questions: Sequence[Question],
    *,
    max_new_tokens: int = 128,
    temperatures: Sequence[float] = (0.0, 1.0),
    clock: Clock = time.perf_counter,
    progress: Progress = lambda _: None,
) -> Evaluation:
    """Decode prompts with a drafter and without, in turns, at each temperature.

    Who goes first changes from prompt to prompt, so that a machine whose speed drifts is unfair to
    nobody; both have the same seeds. Raises OptionError where there is nothing to measure, and
    PromptError for a prompt that the model cannot take.
    """
    if not questions or not temperatures:
        missing = "temperatures" if questions else "prompts"
        raise OptionError(f"there are no {missing} to evaluate a drafter with")
    for question in questions:
        check_prompt(question.ids, decoder.engine.target)
    both = _Both(decoder, plain, clock)
    both.decode(questions[0], SamplingParams(max_new_tokens=_WARM_UP_TOKENS), swap=False)
    rule, scores, differences, error = decoder.engine.rule, [], [], None
    for temperature in temperatures:
        params = SamplingParams(temperature=temperature, max_new_tokens=max_new_tokens)
        tallies = _measure(both, questions, params, progress)
        is_exact = params.is_greedy or rule == "match"
        scores += [tally.score(temperature, task, is_exact) for task, tally in tallies.items()]
        differences += tallies[ALL].differences if is_exact else []
        error = error or tallies[ALL].error
    return Evaluation(
        rule=rule,
        max_draft=decoder.engine.max_draft,
        max_new_tokens=max_new_tokens,
        scores=tuple(scores),
        differences=tuple(differences),
        error=error,
    )


def _measure(
    both: _Both, questions: Sequence[Question], params: SamplingParams, progress: Progress
) -> dict[str, Tally]:
    """Decode all prompts both ways; return what they come to together, and task by task."""
    tallies = {ALL: Tally()}
    for index, question in enumerate(questions):
        name = f"temperature {params.temperature:g}, prompt {index + 1}"
        progress(f"{name} of {len(questions)}")
        run = both.decode(question, params.with_options(seed=index), swap=index % 2 == 1)
        for task in {ALL, question.task}:
            tallies.setdefault(task, Tally()).add(name, run)
    return tallies


@dataclass(frozen=True, slots=True)
class _Both:
    """A decoder with a drafter, and one without."""

    decoder: Decoder
    plain: Decoder
    clock: Clock

    def decode(self, question: Question, params: SamplingParams, *, swap: bool) -> Run:
        """Decode a prompt both ways, plainly first with `swap`."""
        if swap:
            plain, plain_seconds = self._time(self.plain, question, params)
        drafted, seconds = self._time(self.decoder, question, params)
        if not swap:
            plain, plain_seconds = self._time(self.plain, question, params)
        return Run(drafted, seconds, plain, plain_seconds)

    def _time(
        self, decoder: Decoder, question: Question, params: SamplingParams
    ) -> tuple[Result, float]:
        started = self.clock()
        result = decoder.generate(question.ids, params=params)
        return result, self.clock() - started
