"""`outrider prove`: evidence that a target and its drafters are lossless on this machine."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from outrider.cli import options as cli
from outrider.cli.chatter import chatter

if TYPE_CHECKING:
    from outrider.proof.base import Proof
    from outrider.proof.prove import Progress as Told

_INTERRUPTED = 130
_STEP = 0.05  # share of the work between two lines of progress, where there is no terminal

PromptsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Prompts to answer: a .jsonl file (prompt, messages or turns in each line) or one "
        "prompt a line; our own by default.",
    ),
]
TokensOption = Annotated[
    int, typer.Option(metavar="N", help="Tokens to compare with plain decoding's, at least.")
]
DrawsOption = Annotated[
    int, typer.Option(metavar="N", help="Answers drawn for each test of a distribution.")
]
SeedOption = Annotated[
    int, typer.Option(metavar="N", help="Where the seeds begin that answers are sampled with.")
]
ReportOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also write a report to show to others (.md).")
]
JournalOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Keep every finished check in FILE, and go on from there if the run was stopped.",
    ),
]


def prove(
    ctx: typer.Context,
    target: cli.TargetOption = cli.DEFAULT_TARGET,
    drafter: cli.DraftersOption = cli.DEFAULT_DRAFTER,
    prompts: PromptsOption = None,
    tokens: TokensOption = 2000,
    draws: DrawsOption = 500,
    seed: SeedOption = 0,
    report: ReportOption = None,
    journal: JournalOption = None,
    dtype: cli.DtypeOption = None,
    device: cli.DeviceOption = None,
    offload_folder: cli.OffloadFolderOption = None,
    numerics: cli.NumericsOption = None,
    compile: cli.CompileOption = None,
    trust_remote_code: cli.TrustOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Check that drafts change nothing of what the target says, on this machine.

    Compares tokens with plain decoding's, tests the distribution of sampled text, enumerates the
    verification rules exactly, and tries each sampling option. The last line says PROVED or NOT
    PROVED. Ctrl-C ends it early with what was checked by then.

    Example: outrider prove --drafter suffix,eagle --numerics invariant --report proof.md
    """
    with chatter(), _progress() as progress:
        import outrider
        from outrider.proof.prove import prove as run
        from outrider.proof.report import require_writable
        from outrider.workload.files import default_workload, read_workload

        workload = default_workload() if prompts is None else read_workload(prompts)
        if report is not None:
            require_writable(report)
        progress(f"loading {target}", 0.0)
        decoder = outrider.load(target, **cli.loading(ctx.params))
        proof = run(
            decoder,
            workload,
            tokens=tokens,
            draws=draws,
            seed=seed,
            journal=journal,
            progress=progress,
        )
    _tell(proof, report, as_json)


def _tell(proof: Proof, report: Path | None, as_json: bool) -> None:
    """Write and print what was found; leave with the exit code that says whether it is proved."""
    from outrider.proof.report import write_report

    command = shlex.join(["outrider", *sys.argv[1:]])
    if report is not None:
        write_report(proof, report, command)
    if as_json:
        typer.echo(json.dumps(proof.to_dict() | {"command": command}, allow_nan=False))
    else:
        _show(proof)
    if proof.was_interrupted:
        raise typer.Exit(_INTERRUPTED)
    if not proof.is_proved:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Told]:
    """Say on stderr what is checked and about how long it takes yet."""
    console = Console(stderr=True, markup=False, highlight=False)
    clock = _Clock()
    if not console.is_terminal:
        yield _Lines(clock)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TextColumn("{task.fields[left]}"), console=console) as bar:
        task = bar.add_task("", total=1.0, left="")

        def told(text: str, share: float) -> None:
            bar.update(task, description=text, completed=share, left=clock.left(share))

        yield told


class _Clock:
    """Tells how long the rest of the work takes, by what has been done since it began."""

    def __init__(self) -> None:
        self._began: tuple[float, float] | None = None

    def left(self, share: float) -> str:
        """Return the time left in words; nothing where too little is done to tell."""
        now = time.monotonic()
        if self._began is None and share > 0:
            self._began = (now, share)
        if self._began is None or share <= self._began[1]:
            return ""
        began, first = self._began
        minutes = (now - began) * (1 - share) / (share - first) / 60
        return f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"


class _Lines:
    """Progress where no terminal shows a bar: a line now and then."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self._next = 0.0

    def __call__(self, text: str, share: float) -> None:
        left = self._clock.left(share)
        if share < self._next:
            return
        self._next = share + _STEP if share else 0.0
        typer.echo(f"{share:4.0%} {text}{', ' if left else ''}{left}", err=True)


def _show(proof: Proof) -> None:
    from outrider.proof.base import PARTS
    from outrider.proof.tables import findings, headers, rows, title

    console = Console(markup=False, highlight=False)
    for part in PARTS:
        checks = proof.of_part(part)
        if not checks:
            continue
        table = Table()
        first, *others, last = headers(part)
        table.add_column(first, overflow="fold", min_width=24)
        for name in others:
            table.add_column(name, justify="left" if name == "found" else "right")
        table.add_column(last)
        for row in rows(part, checks):
            table.add_row(*row)
        console.print(title(part), soft_wrap=True)
        console.print(table)
    for line in findings(proof):
        console.print(line, soft_wrap=True)
    subject = proof.subject
    how = "compiled" if subject.is_compiled else "eager"
    about = f"{subject.model}, {subject.dtype}, {subject.numerics} numerics, {how} passes"
    console.print(f"model: {about}", soft_wrap=True)
    console.print(proof.verdict, soft_wrap=True)
