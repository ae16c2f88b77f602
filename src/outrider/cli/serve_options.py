"""The options of `outrider serve`: their names and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from outrider.cli import options as cli

DrafterOption = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help=f"none, ngram, suffix, grammar, {cli.OTHER_DRAFTERS}{cli.SEVERAL_DRAFTERS}",
    ),
]
EngineOption = Annotated[
    Literal["outrider", "vllm"],
    typer.Option(help="vllm: start vLLM's own server, with this target and drafter."),
]
HostOption = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 for all.")
]
PortOption = Annotated[
    int, typer.Option(metavar="N", help="Port to listen on; 0 for any free one.")
]
NameOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="What requests call the model; as --target by default."),
]
ApiKeyOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY",
        help="A key that requests must bear; repeatable. Also $OUTRIDER_API_KEY, with commas "
        "between several. Without any key all requests are answered.",
    ),
]
CorsOriginOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN", help="A web site whose pages may send requests; repeatable; * is all."
    ),
]
MaxBatchOption = Annotated[
    int,
    typer.Option(
        metavar="N", help="Most answers that are written at a time; with vLLM its own default."
    ),
]
MaxQueueOption = Annotated[
    int, typer.Option(metavar="N", help="Most answers that wait; more are told to come again.")
]
MaxBodyOption = Annotated[int, typer.Option(metavar="N", help="Largest body of a request.")]
MaxPromptOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="Longest prompt; as long as the model takes by default."),
]
MaxAnswerOption = Annotated[
    int,
    typer.Option(metavar="N", help="Longest answer; a chat that sets no limit gets this one."),
]
PrefillRowsOption = Annotated[
    int,
    typer.Option(
        metavar="N", help="Tokens of long prompts that are read between rounds of other answers."
    ),
]
PrefixCachesOption = Annotated[
    int,
    typer.Option(
        metavar="N", help="Caches kept of finished answers, for prompts that begin alike."
    ),
]
DrainOption = Annotated[
    float,
    typer.Option(
        metavar="S", help="After SIGTERM, how long answers that were begun may take to end."
    ),
]
LogPromptsOption = Annotated[
    bool, typer.Option("--log-prompts", help="Write the bodies of requests to the log.")
]
TensorParallelOption = Annotated[
    int, typer.Option(metavar="N", help="With vLLM: GPUs that share every layer.")
]
PipelineParallelOption = Annotated[
    int, typer.Option(metavar="N", help="With vLLM: groups of GPUs that each hold some layers.")
]
VllmPythonOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="With vLLM: the Python that has it; by default that of the peers (docs/peers.md).",
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="With vLLM: print what would be started, as JSON, and end."),
]
VllmArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="VLLM_OPTION",
        help="After --, with vLLM: options of its own server, as they are.",
        show_default=False,
    ),
]
