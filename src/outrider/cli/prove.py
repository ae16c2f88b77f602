"""`outrider prove`: evidence that a target and its drafters are lossless on this machine."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table as Drawn

from outrider.cli import options as cli
from outrider.cli import prove_options as own
from outrider.cli.chatter import chatter
from outrider.errors import OptionError

if TYPE_CHECKING:
    from outrider.decoder import Decoder
    from outrider.proof.base import Proof, Table
    from outrider.proof.loss import Loss
    from outrider.proof.prove import Progress as Told
    from outrider.workload.files import WorkloadPrompt

_INTERRUPTED = 130
_WORDS = ("found", "passed")  # columns of a table that hold no figures
_STEP = 0.05  # share of the work between two lines of progress, where there is no terminal


def prove(
    ctx: typer.Context,
    target: cli.TargetOption = cli.DEFAULT_TARGET,
    drafter: cli.DraftersOption = cli.DEFAULT_DRAFTER,
    lossy: cli.LossyOption = None,
    prompts: cli.PromptsOption = None,
    tokens: own.TokensOption = 2000,
    draws: own.DrawsOption = 500,
    seed: own.SeedOption = 0,
    report: own.ReportOption = None,
    journal: own.JournalOption = None,
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

    With --lossy the last line says NOT LOSSLESS, and how far the rule leads from the target.

    Example: outrider prove --drafter suffix,eagle --numerics invariant --report proof.md
    """
    if lossy is not None and journal is not None:
        raise OptionError("--journal keeps checks, and with --lossy none are made: leave one")
    with chatter(), _progress() as progress:
        import outrider
        from outrider.proof.report import require_writable
        from outrider.workload.files import default_workload, read_workload

        workload = default_workload() if prompts is None else read_workload(prompts)
        if report is not None:
            require_writable(report)
        progress(f"loading {target}", 0.0)
        decoder = outrider.load(target, **cli.loading(ctx.params))
        found = _examine(
            decoder,
            workload,
            is_lossy=lossy is not None,
            journal=journal,
            tokens=tokens,
            draws=draws,
            seed=seed,
            progress=progress,
        )
    _tell(found, report, as_json)


def _examine(
    decoder: Decoder,
    workload: Sequence[WorkloadPrompt],
    *,
    is_lossy: bool,
    journal: Path | None,
    **how: Any,
) -> Proof | Loss:
    """Prove what promises something, and measure what does not."""
    if is_lossy:
        from outrider.proof.measure_loss import measure_loss

        return measure_loss(decoder, workload, **how)
    from outrider.proof.prove import prove as run

    return run(decoder, workload, journal=journal, **how)


def _tell(found: Proof | Loss, report: Path | None, as_json: bool) -> None:
    """Write and print what was found; leave with the exit code that says whether it is proved."""
    from outrider.proof.report import write_report

    command = shlex.join(["outrider", *sys.argv[1:]])
    if report is not None:
        write_report(found, report, command)
    if as_json:
        typer.echo(json.dumps(found.to_dict() | {"command": command}, allow_nan=False))
    else:
        _show(found)
    if found.was_interrupted:
        raise typer.Exit(_INTERRUPTED)
    if not found.is_proved:
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


def _show(found: Proof | Loss) -> None:
    from outrider.proof.base import Proof
    from outrider.proof.loss_tables import loss_findings, loss_tables
    from outrider.proof.tables import findings, proof_tables

    if isinstance(found, Proof):
        tables, lines = [*proof_tables(found).values()], findings(found)
    else:
        tables, lines = loss_tables(found), loss_findings(found)
    console = Console(markup=False, highlight=False)
    for table in tables:
        console.print(table.title, soft_wrap=True)
        console.print(_drawn(table))
    subject = found.subject
    how = f"{subject.numerics} numerics, passes {subject.passes}"
    about = f"{subject.model}, {subject.dtype}, {how}"
    for line in (*lines, f"model: {about}", found.verdict):
        console.print(line, soft_wrap=True)


def _drawn(table: Table) -> Drawn:
    drawn = Drawn()
    first, *others = table.headers
    drawn.add_column(first, overflow="fold", min_width=24)
    for name in others:
        drawn.add_column(name, justify="left" if name in _WORDS else "right")
    for row in table.rows:
        drawn.add_row(*row)
    return drawn
