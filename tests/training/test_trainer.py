"""A run that stops and goes on is the run that did not; what it keeps is what drafts best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from outrider.errors import LoadError, OptionError, TrainingError
from outrider.training.base import Batch, Marks, Sample
from outrider.training.metrics import TABLE, read_rows
from outrider.training.optimizer import OptimizerName
from outrider.training.pace import Report
from outrider.training.settings import TrainOptions
from outrider.training.state import RunFolder
from outrider.training.trainer import Outcome, Trainer
from support.lessons import ToyBatches, ToyLesson

OPTIONS = TrainOptions(
    learning_rate=0.1, epochs=3, accumulate=2, save_every=3, evaluate_every=2, seed=5
)
STEPS = 11  # three epochs of 7 batches, two a step, the last step one


class Stopped(BaseException):
    """What a kill is to the process."""


def trainer(
    folder: Path,
    options: TrainOptions = OPTIONS,
    lesson: ToyLesson | None = None,
    corpus: ToyBatches | None = None,
    **more: Any,
) -> Trainer:
    more = {"held_out": list(ToyBatches(2, seed=9).batches(0)), **more}
    lesson = ToyLesson() if lesson is None else lesson
    return Trainer(lesson, ToyBatches() if corpus is None else corpus, options, folder, **more)


def stop_at(step: int) -> Callable[[Report], None]:
    def stop(report: Report) -> None:
        if report.step == step:
            raise Stopped

    return stop


def last(folder: Path) -> Mapping[str, Tensor]:
    snapshot = RunFolder(folder).newest()
    assert snapshot is not None
    return {**snapshot.weights, **{f"o.{n}": one for n, one in snapshot.optimizer.items()}}


def assert_equal(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


@pytest.mark.parametrize("optimizer", get_args(OptimizerName))
@pytest.mark.parametrize("stops", [(1,), (2,), (4, 5), (7,), (10,), (3, 6, 9), (11,)])
def test_a_run_stopped_and_resumed_ends_with_the_same_weights(
    tmp_path: Path, stops: tuple[int, ...], optimizer: OptimizerName
) -> None:
    options = replace(OPTIONS, optimizer=optimizer)
    whole = trainer(tmp_path / "whole", options).run()
    for stop in stops:
        with pytest.raises(Stopped):
            trainer(tmp_path / "parts", options, progress=stop_at(stop)).run(resume=True)
    lesson = ToyLesson()
    found = trainer(tmp_path / "parts", options, lesson).run(resume=True)
    assert_equal(last(tmp_path / "parts"), last(tmp_path / "whole"))
    assert (found.kept, found.place.best) == (whole.kept, whole.place.best)
    assert_equal(lesson.module.state_dict(), RunFolder(tmp_path / "whole").read(whole.kept).weights)
    ours, theirs = (read_rows(tmp_path / name / TABLE) for name in ("parts", "whole"))
    times = {"seconds", "tokens_per_second"}
    kept = [[(n, v) for n, v in row.items() if n not in times] for row in ours]
    assert kept == [[(n, v) for n, v in row.items() if n not in times] for row in theirs]
    assert len(ours) == STEPS


def test_a_stop_loses_no_more_than_the_steps_since_the_last_checkpoint(tmp_path: Path) -> None:
    options = replace(OPTIONS, save_every=4)
    with pytest.raises(Stopped):
        trainer(tmp_path, options, held_out=None, progress=stop_at(7)).run()
    seen: list[int] = []
    told = trainer(tmp_path, options, held_out=None, progress=lambda one: seen.append(one.step))
    told.run(resume=True)
    assert seen == list(range(5, STEPS + 1))


def test_a_damaged_checkpoint_costs_one_interval_and_not_the_weights(tmp_path: Path) -> None:
    trainer(tmp_path / "whole").run()
    with pytest.raises(Stopped):
        trainer(tmp_path / "hurt", progress=stop_at(8)).run()
    folder = RunFolder(tmp_path / "hurt")
    (folder.path / f"step-{folder.steps()[-1]:08d}" / "model.safetensors").write_bytes(b"")
    with pytest.raises(Stopped):
        trainer(tmp_path / "hurt", progress=stop_at(7)).run(resume=True)
    assert folder.steps()[-1] == 6  # the damaged one no longer counts among the last two
    trainer(tmp_path / "hurt").run(resume=True)
    assert_equal(last(tmp_path / "hurt"), last(tmp_path / "whole"))


def test_the_callers_random_numbers_are_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    trainer(tmp_path).run()
    assert torch.equal(torch.get_rng_state(), before)


def test_other_random_numbers_of_the_caller_change_nothing(tmp_path: Path) -> None:
    for seed in (1, 2):
        torch.manual_seed(seed)
        trainer(tmp_path / str(seed)).run()
    assert_equal(last(tmp_path / "1"), last(tmp_path / "2"))
    trainer(tmp_path / "3", replace(OPTIONS, seed=6)).run()
    assert not torch.equal(last(tmp_path / "1")["table"], last(tmp_path / "3")["table"])


class Scripted(ToyLesson):
    """Its loss on held-out batches falls and falls; its acceptance does as it is told."""

    def __init__(self, taus: tuple[float, ...]) -> None:
        super().__init__()
        self.taus = taus
        self.looks = 0

    def marks(self, batch: Batch) -> Marks:
        marks = super().marks(batch)
        if self.module.training:
            return marks
        self.looks += 1
        alpha = self.taus[self.looks - 1] - 1
        return Marks(torch.tensor(1.0 - self.looks / 10), (alpha, 0.0), (alpha, 0.0))


def test_the_best_weights_are_those_of_the_highest_acceptance_not_the_lowest_loss(
    tmp_path: Path,
) -> None:
    """TRAIN-5"""
    lesson = Scripted((1.31, 1.33, 1.32))
    options = replace(OPTIONS, epochs=None, max_steps=6, save_every=100)
    held_out = list(ToyBatches(1).batches(0))
    found = trainer(tmp_path, options, lesson, held_out=held_out).run()
    assert lesson.looks == 3
    assert found.kept == 4
    assert found.place.best is not None
    assert found.place.best.tau == pytest.approx(1.33)
    assert_equal(lesson.module.state_dict(), RunFolder(tmp_path).read(4).weights)
    assert not torch.equal(lesson.module.state_dict()["table"], last(tmp_path)["table"])


def test_without_held_out_batches_the_last_weights_are_kept(tmp_path: Path) -> None:
    lesson = ToyLesson()
    found = trainer(tmp_path, lesson=lesson, held_out=None).run()
    assert (found.kept, found.place.best) == (STEPS, None)
    assert_equal(lesson.module.state_dict(), RunFolder(tmp_path).read(STEPS).weights)
    assert not lesson.module.training


def test_training_learns(tmp_path: Path) -> None:
    reports: list[Report] = []
    options = replace(OPTIONS, epochs=12)
    trainer(tmp_path, options, progress=reports.append).run()
    looks = [report.held_out for report in reports if report.held_out is not None]
    assert looks[-1].loss < looks[0].loss
    assert looks[-1].tau > looks[0].tau + 0.2


def broken(value: float, at: int) -> Callable[[int, Tensor], Tensor]:
    return lambda seen, loss: loss * value if seen == at else loss


def steep(seen: int, loss: Tensor) -> Tensor:
    """Return a loss that is finite, with a slope that is not."""
    return (loss - loss.detach()).abs().sqrt() + 1 if seen == 8 else loss


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (broken(math.nan, 8), "loss of step 5 is nan"),
        (broken(math.inf, 9), "loss of step 5 is inf"),
        (steep, "gradient of step 5 is nan"),
    ],
)
def test_a_number_that_is_none_stops_the_run_and_the_last_good_weights_stay(
    tmp_path: Path, spoil: Callable[[int, Tensor], Tensor], what: str
) -> None:
    trainer(tmp_path / "whole").run()
    lesson = ToyLesson(spoil=spoil)
    with pytest.raises(TrainingError, match=f"{what}; the checkpoint of step 4 is kept"):
        trainer(tmp_path / "spoilt", lesson=lesson).run()
    for name, tensor in last(tmp_path / "spoilt").items():
        assert tensor.isfinite().all(), name
    trainer(tmp_path / "spoilt").run(resume=True)
    assert_equal(last(tmp_path / "spoilt"), last(tmp_path / "whole"))


def test_several_batches_a_step_learn_as_one_large_batch_does(tmp_path: Path) -> None:
    """Token for token: each batch counts by its tokens, and batches here differ in length."""
    rows = []
    for samples, accumulate in ((1, 4), (4, 1)):
        lesson = ToyLesson()
        for part in lesson.module.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        options = TrainOptions(learning_rate=0.1, accumulate=accumulate, max_steps=1)
        folder = tmp_path / str(samples)
        trainer(folder, options, lesson, _Sliced(samples), held_out=None).run()
        rows.append((lesson.module.state_dict()["table"], read_rows(folder / TABLE)))
    (first, one), (second, other) = rows
    torch.testing.assert_close(first, second)
    for name in ("loss", "gradient", "tokens", "alpha_1"):
        assert one[0][name] == pytest.approx(other[0][name]), name


class _Sliced(ToyBatches):
    """The same samples, in batches of one or of four."""

    def __init__(self, samples: int) -> None:
        super().__init__(4 // samples, samples=samples)

    def _sample(self, *place: int) -> Sample:
        epoch, number, one = place
        return super()._sample(epoch, number * self._samples + one)


def test_a_long_gradient_is_shortened(tmp_path: Path) -> None:
    lesson = ToyLesson(spoil=lambda _, loss: loss * 1e6)
    norms: list[float] = []

    def note(report: Report) -> None:
        found = [part.grad for part in lesson.module.parameters() if part.grad is not None]
        norms.append(math.hypot(*(float(one.norm()) for one in found)))
        assert report.gradient > 1e4

    trainer(tmp_path, replace(OPTIONS, clip=0.5), lesson, progress=note).run()
    assert norms == pytest.approx([0.5] * STEPS, rel=1e-4)


def test_what_is_frozen_stays_as_it_was_and_is_kept(tmp_path: Path) -> None:
    lesson = ToyLesson()
    trainer(tmp_path, lesson=lesson).run()
    assert torch.equal(last(tmp_path)["fixed"], torch.ones(8))
    assert torch.equal(last(tmp_path)["ids"], torch.arange(8))
    assert not any(name.startswith("o.fixed") for name in last(tmp_path))


class Ticking:
    """A clock that goes on by a tenth of an hour at every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 360.0
        return self.now


def test_the_time_given_is_that_of_all_parts_together(tmp_path: Path) -> None:
    options = replace(OPTIONS, epochs=100, max_hours=2.0, save_every=100)
    found = trainer(tmp_path, options, held_out=None, clock=Ticking()).run()
    assert found.ending == "hours"
    assert 0 < found.place.step < found.total_steps
    assert 7200 <= found.place.seconds < 9000
    again = trainer(tmp_path, options, held_out=None, clock=Ticking()).run(resume=True)
    assert again.place == found.place
    longer = replace(options, max_hours=3.0)
    more = trainer(tmp_path, longer, held_out=None, clock=Ticking()).run(resume=True)
    assert found.place.step < more.place.step < 2 * found.place.step
    assert 10800 <= more.place.seconds < 12600


def test_a_run_that_is_over_is_not_run_again(tmp_path: Path) -> None:
    first = trainer(tmp_path).run()
    lesson = ToyLesson()
    again = trainer(tmp_path, lesson=lesson).run(resume=True)
    assert again == Outcome(first.place, STEPS, "steps", first.kept)
    assert lesson.seen == 0
    assert_equal(lesson.module.state_dict(), RunFolder(tmp_path).read(first.kept).weights)
    assert len(read_rows(tmp_path / TABLE)) == STEPS


def test_steps_may_end_an_epoch_early_or_take_several(tmp_path: Path) -> None:
    seen: dict[int, list[tuple[int, int]]] = {}
    for most in (2, 9):
        options = TrainOptions(max_steps=most)
        seen[most] = []
        run = trainer(
            tmp_path / str(most),
            options,
            progress=lambda one, most=most: seen[most].append((one.step, one.epoch)),
        )
        assert run.run().ending == "steps"
    assert seen[2] == [(1, 0), (2, 0)]
    assert seen[9] == [*((step, 0) for step in range(1, 8)), (8, 1), (9, 1)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.2}, "learning_rate is 0.2, but the run in .* with 0.1"),
        ({"seed": 6}, "seed is 6"),
        ({"epochs": 4}, "epochs is 4"),
    ],
)
def test_a_run_is_not_gone_on_with_under_other_options(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    trainer(tmp_path).run()
    with pytest.raises(OptionError, match=message):
        trainer(tmp_path, replace(OPTIONS, **change)).run(resume=True)


def test_a_run_is_not_gone_on_with_on_another_corpus_or_with_another_drafter(
    tmp_path: Path,
) -> None:
    trainer(tmp_path).run()
    with pytest.raises(OptionError, match="corpus is '7 1 2', but the run"):
        trainer(tmp_path, corpus=ToyBatches(seed=1)).run(resume=True)
    lesson = ToyLesson()
    lesson.module.extra = torch.nn.Linear(2, 2)
    with pytest.raises(LoadError, match="another drafter"):
        trainer(tmp_path, lesson=lesson).run(resume=True)


def test_a_folder_with_a_run_is_not_written_over(tmp_path: Path) -> None:
    trainer(tmp_path).run()
    kept = last(tmp_path)
    with pytest.raises(OptionError, match="holds a run; resume it"):
        trainer(tmp_path).run()
    assert_equal(last(tmp_path), kept)


def test_what_cannot_be_trained_is_one_error(tmp_path: Path) -> None:
    half, frozen = ToyLesson(), ToyLesson()
    half.module.bfloat16()
    frozen.module.requires_grad_(False)
    with pytest.raises(OptionError, match="table is bfloat16; training needs float32"):
        trainer(tmp_path, lesson=half)
    with pytest.raises(OptionError, match="no parameter to be trained"):
        trainer(tmp_path, lesson=frozen)
    with pytest.raises(OptionError, match="not one batch"):
        trainer(tmp_path, corpus=ToyBatches(0))
    with pytest.raises(OptionError, match="no batches are held out"):
        trainer(tmp_path, held_out=())


def test_half_precision_is_for_products_and_never_for_weights(tmp_path: Path) -> None:
    kinds: list[tuple[torch.dtype, bool]] = []

    class Watched(ToyLesson):
        def marks(self, batch: Batch) -> Marks:
            product = torch.ones(2, 2) @ torch.ones(2, 2)
            kinds.append((product.dtype, torch.is_autocast_enabled("cpu")))
            return super().marks(batch)

    lesson = Watched()
    trainer(tmp_path / "half", replace(OPTIONS, autocast=True), lesson).run()
    assert set(kinds) == {(torch.bfloat16, True)}
    weights = [one for one in last(tmp_path / "half").values() if one.is_floating_point()]
    assert {one.dtype for one in weights} == {torch.float32}


def test_progress_says_what_is_left_and_what_was_reached(tmp_path: Path) -> None:
    reports: list[Report] = []
    ticks = iter(range(10_000))
    run = trainer(tmp_path, progress=reports.append, clock=lambda: float(next(ticks)))
    run.run()
    assert [report.step for report in reports] == list(range(1, STEPS + 1))
    assert {report.total_steps for report in reports} == {STEPS}
    assert reports[-1].seconds_left == 0
    assert all(report.seconds_left > 0 for report in reports[:-1])
    assert [report.step for report in reports if report.held_out] == [2, 4, 6, 8, 10, 11]
    assert reports[-1].tokens == sum(
        batch.num_tokens for epoch in range(3) for batch in ToyBatches().batches(epoch)
    )
    assert all(report.tokens_per_second > 0 for report in reports)
