"""`outrider tune`: measure a target and its drafters on this machine, and keep what was found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from outrider.cli import options as cli
from outrider.cli.chatter import chatter

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.engine.measure import PassPoint, Progress
    from outrider.tuning.tally import DrafterResult
    from outrider.tuning.tune import TuneReport


def tune(
    ctx: typer.Context,
    target: cli.TargetOption = cli.DEFAULT_TARGET,
    drafter: cli.DraftersOption = cli.DEFAULT_TUNED,
    workload: cli.WorkloadOption = None,
    limit: cli.LimitOption = None,
    max_new_tokens: cli.TokensEachOption = 64,
    dtype: cli.DtypeOption = None,
    device: cli.DeviceOption = None,
    offload_folder: cli.OffloadFolderOption = None,
    numerics: cli.NumericsOption = None,
    compile: cli.CompileFirstOption = True,
    trust_remote_code: cli.TrustOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Measure passes and drafters on this machine, and keep a profile for `generate`.

    The passes are compiled first, which takes minutes, once for a model and machine.

    Example: outrider tune --drafter suffix,ngram --limit 4
    """
    with chatter(), _progress() as progress:
        import outrider
        from outrider.tuning import tune as tuning
        from outrider.workload.files import default_workload, limited, read_workload

        prompts = default_workload() if workload is None else read_workload(workload)
        prompts = limited(prompts, limit)
        progress(f"loading {target}")
        decoder = outrider.load(target, profile=False, **cli.loading(ctx.params))
        report = tuning.tune(decoder, prompts, max_new_tokens=max_new_tokens, progress=progress)
        path = report.profile.save()
    if as_json:
        document = report.to_dict() | {"profile": str(path)}
        typer.echo(json.dumps(document, allow_nan=False))
    else:
        _show(report, path)
    if not report.is_identical:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Say on stderr what is going on: in one line on a terminal, else in a line for each step."""
    console = Console(stderr=True, markup=False, highlight=False)
    if not console.is_terminal:
        yield lambda text: typer.echo(text, err=True)
        return
    with console.status("") as status:
        yield status.update


def _show(report: TuneReport, path: Path) -> None:
    console = Console(markup=False, highlight=False)
    console.print("Time of a pass, by rows of each sequence, for sequences x context")
    console.print(_passes(report.passes))
    console.print("The workload, prompts included")
    console.print(_drafters(report.results))
    subject = report.profile.subject
    about = f"{subject.model}, {subject.dtype}, passes {subject.passes}"
    console.print(f"model: {about}", soft_wrap=True)
    console.print(f"fastest: --drafter {report.recommended}", soft_wrap=True)
    console.print(f"profile: {path}", soft_wrap=True)
    for result in report.results:
        for difference in result.differences:
            console.print(f"not identical: {result.drafter}, {difference}", soft_wrap=True)


def _passes(points: tuple[PassPoint, ...]) -> Table:
    """Show the time of a pass by rows, a column for each batch and context that was measured."""
    columns = list(dict.fromkeys((point.batch, point.context) for point in points))
    found = {(p.batch, p.context, p.rows): p.seconds for p in points}
    single = {p.rows: p.seconds for p in points if (p.batch, p.context) == columns[0]}
    table = Table("rows")
    table.add_column("over 1", justify="right")
    for batch, context in columns:
        table.add_column(f"{batch} x {context}", justify="right")
    for rows in sorted({point.rows for point in points}):
        times = [found.get((batch, context, rows)) for batch, context in columns]
        ratio = single[rows] / single[1] if rows in single else None
        table.add_row(
            str(rows),
            _optional(ratio, "{:.2f}x"),
            *(_optional(None if t is None else 1e3 * t, "{:.1f} ms") for t in times),
        )
    return table


def _drafters(results: tuple[DrafterResult, ...]) -> Table:
    table = Table("drafter")
    for name in ("tokens/s", "tau", "accepted", "predicted", "measured", "identical"):
        table.add_column(name, justify="right")
    for result in results:
        same = result.prompts - len(result.differences)
        table.add_row(
            result.drafter,
            f"{result.tokens_per_second:.1f}",
            f"{result.acceptance_length:.2f}",
            _optional(result.acceptance_rate, "{:.0%}"),
            _optional(result.predicted_speedup, "{:.2f}x"),
            f"{result.speedup:.2f}x",
            f"{same}/{result.prompts}",
        )
    return table


def _optional(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
