"""The loop that trains: steps, checkpoints, looks at what was held out, and an end.

A run that was stopped and resumed goes the way it would have gone, bit for bit on a CPU. The best
weights are those of the highest acceptance on held-out batches: a loss may fall while acceptance
falls with it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from outrider.errors import OptionError, TrainingError
from outrider.training.base import Batch, Lesson
from outrider.training.figures import Figures
from outrider.training.flow import Batches, Flow, Item
from outrider.training.learner import Learner
from outrider.training.metrics import MetricsLog
from outrider.training.pace import Clock, Pace, Report
from outrider.training.settings import TrainOptions
from outrider.training.state import Best, Place, RunFolder, Snapshot

Ending: TypeAlias = Literal["steps", "hours"]
"""Why a run ended: all its steps were made, or its time was over."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    place: Place
    total_steps: int
    ending: Ending
    kept: int
    """The step whose weights the module has now: the best, or the last where none was scored."""


class Trainer:
    """Trains the module of a lesson on a corpus, and keeps what it does in a folder.

    `held_out` are batches that are never learnt from; they decide which weights are kept in the
    end. `progress` is told of every step.
    """

    def __init__(
        self,
        lesson: Lesson,
        corpus: Batches,
        options: TrainOptions,
        folder: Path,
        *,
        held_out: Iterable[Batch] | None = None,
        progress: Callable[[Report], None] = lambda _: None,
        clock: Clock = time.perf_counter,
    ) -> None:
        """Raises OptionError for what cannot be trained, or nothing to learn it from."""
        self._options = options
        self._learner = Learner(lesson, options)
        self._flow = Flow(corpus, options)
        self._schedule = options.plan(self._flow.total_steps)
        self._held_out = None if held_out is None else list(held_out)
        if self._held_out == []:
            raise OptionError("no batches are held out; hold some out, or train without")
        self._progress = progress
        self._clock = clock
        self._folder = folder
        self._store = RunFolder(folder)

    @property
    def total_steps(self) -> int:
        """The steps of the whole run, were there no end to its time."""
        return self._flow.total_steps

    def run(self, *, resume: bool = False) -> Outcome:
        """Train to the end, and leave the module with the best weights.

        With `resume` a run that was stopped goes on from its last intact checkpoint, if it has
        any. Raises OptionError for a folder that holds a run which is not to be resumed, or was
        begun with other options, TrainingError for a loss or gradient that is not finite, and
        LoadError for checkpoints that are damaged, all of them.
        """
        place = self._begin(resume)
        pace = Pace(place.seconds, self._clock)
        groups = self._flow.groups(place)
        device = self._learner.device
        gpus = [device] if device.type == "cuda" else []
        # The caller's own random numbers go on afterwards as if none had been drawn here.
        with torch.random.fork_rng(gpus), MetricsLog(self._folder, place.step) as log:
            while (ending := self._ending(place)) is None:
                place, report = self._advance(place, next(groups), pace)
                log.write(report.step, report.row(self._held_out is not None))
                self._progress(report)
        kept = place.step if place.best is None else place.best.step
        if kept != place.step:
            self._learner.restore(self._store.read(kept).weights)
        self._learner.module.eval()
        return Outcome(place, self.total_steps, ending, kept)

    def _advance(self, place: Place, group: Sequence[Item], pace: Pace) -> tuple[Place, Report]:
        """Make a step, look at what is held out where that is due, and keep what came of it."""
        step, batches = place.step + 1, [item.batch for item in group]
        rate = self._schedule.rate(step)
        figures, gradient = self._learner.learn(step, batches)
        self._require_finite(step, loss=figures.loss, gradient=gradient)
        self._learner.update(rate)
        pace.count(sum(batch.num_tokens for batch in batches))
        place = replace(
            place,
            step=step,
            epoch=group[-1].epoch,
            batch=group[-1].next,
            tokens=place.tokens + sum(batch.num_tokens for batch in batches),
            seconds=pace.seconds,
        )
        held_out = self._look(place)
        place = self._keep(place, held_out)
        return place, Report(
            step=step,
            total_steps=self.total_steps,
            epoch=place.epoch,
            figures=figures,
            held_out=held_out,
            learning_rate=rate,
            gradient=gradient,
            tokens=place.tokens,
            tokens_per_second=pace.tokens_per_second,
            seconds=place.seconds,
            seconds_left=pace.seconds_left(self.total_steps - step, self._max_seconds),
        )

    def _look(self, place: Place) -> Figures | None:
        """Return how the batches held out fare, None at a step that does not look at them."""
        is_due = place.step % self._options.evaluate_every == 0 or self._ending(place)
        return self._learner.look(self._held_out) if self._held_out and is_due else None

    def _keep(self, place: Place, held_out: Figures | None) -> Place:
        """Keep a checkpoint where one is due, where the run ends, and of new best weights."""
        best = place.best
        if held_out is not None:
            self._require_finite(place.step, held_out_tau=held_out.tau)
        if held_out is not None and (best is None or held_out.tau > best.tau):
            place = replace(place, best=Best(place.step, held_out.tau))
        is_due = place.step % self._options.save_every == 0 or self._ending(place)
        if is_due or place.best != best:
            self._store.save(Snapshot(place, self._course(), *self._learner.state()))
        return place

    def _ending(self, place: Place) -> Ending | None:
        if place.step >= self.total_steps:
            return "steps"
        limit = self._max_seconds
        return "hours" if limit is not None and place.seconds >= limit else None

    @property
    def _max_seconds(self) -> float | None:
        hours = self._options.max_hours
        return None if hours is None else 3600 * hours

    def _course(self) -> dict[str, Any]:
        """Return all that a run must share with the one it goes on from."""
        return self._options.course() | {
            "total_steps": self.total_steps,
            "corpus": self._flow.digest,
        }

    def _begin(self, resume: bool) -> Place:
        """Return where to start, with weights and optimizer as they were there."""
        if self._store.steps() and not resume:
            raise OptionError(f"{self._folder} holds a run; resume it, or name a new folder")
        snapshot = self._store.newest() if resume else None
        if snapshot is None:
            return Place()
        for name, value in self._course().items():
            if snapshot.course.get(name) != value:
                raise OptionError(
                    f"{name} is {value!r}, but the run in {self._folder} was begun with "
                    f"{snapshot.course.get(name)!r}"
                )
        self._learner.restore(snapshot.weights, snapshot.optimizer)
        self._store.drop_after(snapshot.place.step)
        return snapshot.place

    def _require_finite(self, step: int, **values: float) -> None:
        for name, value in values.items():
            if not math.isfinite(value):
                steps = self._store.steps()
                kept = f"the checkpoint of step {steps[-1]} is kept" if steps else "none was kept"
                raise TrainingError(f"the {name} of step {step} is {value}; {kept}")
