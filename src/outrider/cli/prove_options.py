"""The options of `outrider prove`: their names and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
