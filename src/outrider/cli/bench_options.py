"""The options of `outrider bench`: their names and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ComparedOption = Annotated[
    str,
    typer.Option(
        metavar="SPECS",
        help="What to compare: drafters as for generate, with commas between them; + joins those "
        "that decode together (suffix+eagle). Plain decoding is always among them.",
    ),
]
TemperaturesOption = Annotated[
    str, typer.Option(metavar="X,...", help="Sampling temperatures; 0 is greedy.")
]
BatchesOption = Annotated[
    str, typer.Option(metavar="N,...", help="How many prompts are decoded together.")
]
RulesOption = Annotated[
    str,
    typer.Option(
        metavar="RULE,...", help="How drafts are verified: match, rejection, block, traversal."
    ),
]
LossyRulesOption = Annotated[
    str | None,
    typer.Option(
        "--lossy",
        metavar="RULE,...",
        help="Also verify by rules that let drafts pass which are not the target's words, told "
        "apart and labelled: lenience:L, typical:EPSILON,DELTA, fly:WINDOW,ENTROPY.",
    ),
]
AlternativesOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL,...",
        help="Also decode with other models in the target's place, told apart, for they change the "
        "answer: int8, cut:N (its first N layers), or any MODEL with its token ids.",
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE,...",
        help="Weights to compare: float32, bfloat16, float16, int8; by default those that the "
        "target is loaded with.",
    ),
]
PeersOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="Other programs to compare with: transformers, vllm, llama.cpp, openvino.",
    ),
]
PeerPythonOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=PATH", help="The Python that has a peer; repeatable."),
]
RepeatsOption = Annotated[
    int, typer.Option(metavar="N", help="How often everything is decoded, for the spread.")
]
MaxMinutesOption = Annotated[
    float | None,
    typer.Option(
        metavar="X", help="End after so many minutes of turns, and report what there is by then."
    ),
]
PeerProcessesOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Processes of peers that are held in memory at a time; by default all of them.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Where records and reports go; a run that was stopped goes on there."
    ),
]
ReportOnlyOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Measure nothing: write the reports in DIR anew, from the records there.",
    ),
]
