"""The `outrider` command: its subcommands, and what every failure looks like to the shell.

Exit codes: 0 done, 1 failed (or texts that differ), 2 a wrong request, 130 interrupted.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from outrider import __version__
from outrider.cli.bench import bench
from outrider.cli.export import export
from outrider.cli.generate import generate
from outrider.cli.info import info
from outrider.cli.prove import prove
from outrider.cli.serve import serve
from outrider.cli.train import train
from outrider.cli.tune import tune
from outrider.errors import OutriderError


class _Commands(TyperGroup):
    """Turns our own errors into a line and an exit code; Typer does so for Ctrl-C and pipes."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OutriderError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(error.exit_code) from error


app = typer.Typer(
    cls=_Commands,
    name="outrider",
    help="Write text with a language model in fewer passes, and exactly the same text.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(bench)
app.command()(export)
app.command()(generate)
app.command()(info)
app.command()(prove)
app.command()(serve)
app.command()(train)
app.command()(tune)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"outrider {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options that belong to no command."""


def main() -> None:
    """Run the command line, and leave with its exit code."""
    app()
