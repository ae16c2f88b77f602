"""`outrider train`: from prompts to a drafter, with its card."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from outrider.cli import options as cli
from outrider.cli import train_options as own
from outrider.cli.chatter import chatter

if TYPE_CHECKING:
    from outrider.training.course import Graduate
    from outrider.training.pace import Report
    from outrider.training.recipe import Recipe
    from outrider.training.settings import TrainOptions

_PASSED_ON = ("optimizer", "epochs", "max_steps", "max_hours", "seed")


def train(
    ctx: typer.Context,
    kind: own.KindArgument,
    out: own.OutOption,
    target: cli.TargetOption = cli.DEFAULT_TARGET,
    data: own.DataOption = "self,tasks",
    texts: own.TextsOption = False,
    prompts: own.PromptsOption = 2000,
    tokens: own.TokensOption = None,
    answer_tokens: own.AnswerTokensOption = 256,
    temperature: own.TemperatureOption = 0.0,
    start: own.StartOption = None,
    loss: own.LossOption = "hybrid",
    version: own.VersionOption = 3,
    steps: own.StepsOption = 4,
    closeness: own.ClosenessOption = 0.0,
    draft_vocabulary: own.DraftVocabularyOption = None,
    heads: own.HeadsOption = 4,
    blocks: own.BlocksOption = 1,
    layers: own.LayersOption = 3,
    copying: own.CopyingOption = False,
    epochs: own.EpochsOption = None,
    max_steps: own.MaxStepsOption = None,
    max_hours: own.MaxHoursOption = None,
    optimizer: own.OptimizerOption = "adamw",
    lr: own.LearningRateOption = 5e-4,
    batch: own.BatchOption = 4096,
    max_tokens: own.MaxTokensOption = 1024,
    features: own.FeaturesOption = None,
    features_gb: own.FeaturesGbOption = 20.0,
    bf16: own.Bf16Option = False,
    seed: own.SeedOption = 0,
    questions: own.QuestionsOption = 20,
    resume: own.ResumeOption = False,
    max_batch: own.MaxBatchOption = 32,
    dtype: cli.DtypeOption = None,
    device: cli.DeviceOption = None,
    compile: cli.CompileOption = None,
    trust_remote_code: cli.TrustOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Train a drafter for a target on what the target says.

    The target answers prompts, the drafter learns from the answers, and is measured on prompts
    that were held out. A run that is stopped, however it is stopped, goes on with --resume.

    Example: outrider train eagle --out my-drafter --max-hours 2
    """
    with chatter(), _progress() as (say, progress):
        import outrider
        from outrider.training.course import train as run

        recipe, how = _recipe(ctx.params), _options(ctx.params)
        say(f"loading {target}")
        decoder = outrider.load(target, max_batch=max_batch, **cli.loading(ctx.params))
        found = run(
            decoder,
            recipe,
            how,
            out,
            resume=resume,
            command=["outrider", *sys.argv[1:]],
            say=say,
            progress=progress,
        )
    _show(found, as_json)


def _recipe(given: Mapping[str, Any]) -> Recipe:
    """Return what is trained, and from what; raises OptionError."""
    from outrider.training.recipe import Recipe

    names = [field.name for field in fields(Recipe) if field.name in given]
    return Recipe(
        **{name: given[name] for name in names} | {"data": tuple(given["data"].split(","))}
    )


def _options(given: Mapping[str, Any]) -> TrainOptions:
    """Return how it is trained; raises OptionError."""
    from outrider.training.settings import TrainOptions

    return TrainOptions(
        learning_rate=given["lr"],
        autocast=given["bf16"],
        **{name: given[name] for name in _PASSED_ON},
    )


@contextmanager
def _progress() -> Iterator[tuple[Callable[[str], None], Callable[[Report], None]]]:
    """Say on stderr what is going on: in one line on a terminal, else now and then in a line."""
    console = Console(stderr=True, markup=False, highlight=False)
    if console.is_terminal:
        with console.status("") as status:
            yield status.update, lambda report: status.update(_line(report))
        return
    last = ""

    def say(text: str) -> None:
        nonlocal last
        heading = text.partition(":")[0]
        if heading != last:
            typer.echo(heading, err=True)
        last = heading

    def progress(report: Report) -> None:
        if report.step % 50 == 0 or report.held_out is not None:
            typer.echo(_line(report), err=True)

    yield say, progress


def _line(report: Report) -> str:
    alphas = " ".join(f"{alpha:.2f}" for alpha in (report.held_out or report.figures).alphas)
    minutes = report.seconds_left / 60
    return (
        f"step {report.step} of {report.total_steps}, loss {report.figures.loss:.3f}, acceptance "
        f"{alphas}, {report.tokens_per_second:.0f} tokens/s, {minutes:.0f} min left"
    )


def _show(found: Graduate, as_json: bool) -> None:
    measured = None if found.evaluation is None else found.evaluation.to_dict()
    if as_json:
        document = {"drafter": found.spec, "folder": str(found.folder), "evaluation": measured}
        typer.echo(json.dumps(document, allow_nan=False))
        return
    typer.echo(f"trained: --drafter {shlex.quote(found.spec)} (its card: {found.folder}/README.md)")
    for score in found.evaluation.scores if found.evaluation else ():
        typer.echo(
            f"temperature {score.temperature:g}: tau {score.acceptance_length:.2f}, "
            f"{score.speedup:.2f}x over plain decoding"
        )
