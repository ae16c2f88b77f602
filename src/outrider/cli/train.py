"""`outrider train`: from prompts to a drafter, with its card."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from outrider.cli import options as cli
from outrider.cli.chatter import chatter

if TYPE_CHECKING:
    from outrider.training.course import Graduate
    from outrider.training.pace import Report

KindArgument = Annotated[
    Literal["eagle", "medusa", "draft"],
    typer.Argument(metavar="eagle|medusa|draft", help="What to train."),
]
DataOption = Annotated[
    str,
    typer.Option(
        metavar="DATA",
        help="self (the target writes prompts), tasks (made-up prompts of many kinds), files of "
        "prompts (JSON lines), or the answers.jsonl of another run; several with commas between.",
    ),
]
TextsOption = Annotated[
    bool, typer.Option("--texts", help="The files hold texts, to be learnt as they are.")
]
OutOption = Annotated[Path, typer.Option(metavar="DIR", help="The folder of the run.")]
LossOption = Annotated[
    Literal["hybrid", "forward-kl", "total-variation", "cross-entropy"],
    typer.Option(help="What is lowered; hybrid and total-variation aim at acceptance."),
]


def train(
    ctx: typer.Context,
    kind: KindArgument,
    out: OutOption,
    target: cli.TargetOption = cli.DEFAULT_TARGET,
    data: DataOption = "self,tasks",
    texts: TextsOption = False,
    prompts: Annotated[
        int, typer.Option(metavar="N", help="Prompts to make up, of each kind.")
    ] = 2000,
    tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Stop answering after so many tokens.")
    ] = None,
    answer_tokens: Annotated[
        int, typer.Option(metavar="N", help="Longest answer, in tokens.")
    ] = 256,
    temperature: Annotated[
        float, typer.Option(metavar="X", help="Temperature of the answers.")
    ] = 0.0,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Begin with a trained drafter, and keep its shape."
        ),
    ] = None,
    loss: LossOption = "hybrid",
    version: Annotated[int, typer.Option(metavar="3|1", help="Version of an EAGLE head.")] = 3,
    steps: Annotated[
        int, typer.Option(metavar="N", help="Tokens an EAGLE-3 head drafts in training.")
    ] = 4,
    closeness: Annotated[
        float,
        typer.Option(
            metavar="X",
            help="Weight of the target's own states as a second aim of an EAGLE-3 head; helps "
            "where data is scarce.",
        ),
    ] = 0.0,
    draft_vocabulary: Annotated[
        int, typer.Option(metavar="N", help="Token ids that are drafted: the most frequent.")
    ] = 8192,
    heads: Annotated[int, typer.Option(metavar="N", help="Medusa heads.")] = 4,
    layers: Annotated[int, typer.Option(metavar="N", help="Layers of a draft model.")] = 3,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", help="Rounds through the data; 1 by default.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(metavar="N", help="Steps at most.")] = None,
    max_hours: Annotated[
        float | None, typer.Option(metavar="X", help="Hours of learning at most.")
    ] = None,
    lr: Annotated[float, typer.Option(metavar="X", help="Highest learning rate.")] = 5e-4,
    batch: Annotated[int, typer.Option(metavar="N", help="Tokens in a batch, at most.")] = 4096,
    max_tokens: Annotated[int, typer.Option(metavar="N", help="Cut longer samples.")] = 1024,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Keep the target's hidden states in FILE: other epochs, and runs that learn from "
            "the same answers, read them there.",
        ),
    ] = None,
    features_gb: Annotated[
        float, typer.Option(metavar="X", help="With --features: the most FILE may hold.")
    ] = 20.0,
    bf16: Annotated[bool, typer.Option("--bf16", help="Compute products in bfloat16.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all that is random.")] = 0,
    questions: Annotated[
        int, typer.Option(metavar="N", help="Held-out prompts to measure the drafter on.")
    ] = 20,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR.")] = False,
    max_batch: Annotated[int, typer.Option(metavar="N", help="Prompts answered at a time.")] = 32,
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
    given = ctx.params
    with chatter(), _progress() as (say, progress):
        import outrider
        from outrider.training.course import train as run
        from outrider.training.recipe import Recipe
        from outrider.training.settings import TrainOptions

        chosen = {name: given[name] for name in _of(Recipe) if name in given}
        recipe = Recipe(**chosen | {"data": tuple(data.split(","))})
        options = TrainOptions(
            learning_rate=lr,
            epochs=epochs,
            max_steps=max_steps,
            max_hours=max_hours,
            autocast=bf16,
            seed=seed,
        )
        say(f"loading {target}")
        decoder = outrider.load(target, max_batch=max_batch, **cli.loading(given))
        found = run(
            decoder,
            recipe,
            options,
            out,
            resume=resume,
            command=["outrider", *sys.argv[1:]],
            say=say,
            progress=progress,
        )
    _show(found, as_json)


def _of(values: Any) -> tuple[str, ...]:
    from dataclasses import fields

    return tuple(one.name for one in fields(values))


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
