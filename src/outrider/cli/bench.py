"""`outrider bench`: drafters and peers beside plain decoding, on prompts, in turns."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console

from outrider.cli import options as cli
from outrider.cli.bar import progress_bar
from outrider.cli.chatter import chatter
from outrider.cli.lists import parse_list, parse_pairs
from outrider.errors import OptionError

if TYPE_CHECKING:
    from outrider.bench.base import Report
    from outrider.bench.options import BenchOptions
    from outrider.bench.own import OwnTarget
    from outrider.bench.pace import Progress
    from outrider.types import Rule

_DEFAULT_DRAFTERS = "none,ngram,suffix"
_WIDTH = 100

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
OutOption = Annotated[
    Path,
    typer.Option(
        metavar="DIR", help="Where records and reports go; a run that was stopped goes on there."
    ),
]


def bench(
    ctx: typer.Context,
    out: OutOption,
    target: cli.TargetOption = cli.DEFAULT_TARGET,
    drafters: ComparedOption = _DEFAULT_DRAFTERS,
    workload: cli.WorkloadOption = None,
    limit: cli.LimitOption = None,
    temperature: TemperaturesOption = "0",
    batch: BatchesOption = "1",
    rules: RulesOption = "match",
    max_new_tokens: cli.TokensEachOption = 128,
    repeats: RepeatsOption = 3,
    max_minutes: MaxMinutesOption = None,
    weights: WeightsOption = None,
    peers: PeersOption = None,
    peer_python: PeerPythonOption = None,
    dtype: cli.DtypeOption = None,
    device: cli.DeviceOption = None,
    offload_folder: cli.OffloadFolderOption = None,
    numerics: cli.NumericsOption = None,
    compile: cli.CompileOption = None,
    trust_remote_code: cli.TrustOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Compare drafters, and other programs, with plain decoding on prompts: how fast, and why.

    Every answer is compared with plain decoding's, token by token. The same command again goes on
    with a run that was stopped.

    Example: outrider bench --drafters suffix,eagle,suffix+eagle --out results
    """
    with chatter(), progress_bar() as progress:
        from outrider.bench.alternatives import parse_alternatives
        from outrider.bench.benchmark import Benchmark
        from outrider.bench.contestants import check_peers, find_peers
        from outrider.bench.options import BenchOptions
        from outrider.bench.reports import write_reports
        from outrider.workload.files import default_workload, limited, read_workload

        options = BenchOptions(
            alternatives=parse_alternatives(drafters),
            temperatures=parse_list("temperature", temperature, float),
            batches=parse_list("batch", batch, int),
            rules=cast("tuple[Rule, ...]", parse_list("rules", rules, str)),
            max_new_tokens=max_new_tokens,
            repeats=repeats,
            max_minutes=max_minutes,
        )
        asked = parse_list("peers", peers, str) if peers else ()
        pythons = {name: Path(path) for name, path in parse_pairs("peer-python", peer_python or [])}
        check_peers(asked, pythons)
        prompts = default_workload() if workload is None else read_workload(workload)
        prompts = limited(prompts, limit)
        own = _load(target, options, weights, ctx.params, progress)
        rivals = find_peers(
            asked,
            options,
            target=target,
            weights=[one.weights for one in own],
            device=str(own[0].device),
            pythons=pythons,
            folder=out,
        )
        report = Benchmark(
            target=target,
            own=own,
            options=options,
            workload=prompts,
            workload_name="built-in" if workload is None else workload.name,
            peers=rivals,
            command=shlex.join(["outrider", *sys.argv[1:]]),
            progress=progress,
        ).run(out)
        files = write_reports(report, out)
    _show(report, files, as_json)


def _load(
    target: str,
    options: BenchOptions,
    weights: str | None,
    params: dict[str, Any],
    progress: Progress,
) -> list[OwnTarget]:
    """Load the target, once for each type of weights; raises OptionError."""
    import outrider
    from outrider.bench.own import OwnTarget
    from outrider.bench.pace import Step
    from outrider.bench.weights import parse_weights, weights_of

    loading = cli.loading(params)
    kinds = [(target, loading)]
    if weights is not None:
        if "dtype" in loading:
            raise OptionError("--dtype and --weights both say how weights are held: give one")
        kinds = [
            (spec, loading | {"dtype": kind})
            for spec, kind in parse_weights(target, parse_list("weights", weights, str))
        ]
    found = []
    for spec, how in kinds:
        progress(Step(f"loading {spec}"))
        decoder = outrider.load(spec, max_batch=max(options.batches), profile=False, **how)
        found.append(
            OwnTarget(
                decoder,
                weights_of(decoder),
                compile=how.get("compile"),
                trust_remote_code=how.get("trust_remote_code", False),
            )
        )
    return found


def _show(report: Report, files: Sequence[Path], as_json: bool) -> None:
    """Print the report, and leave with 1 if a case failed or an answer differs."""
    from outrider.bench.base import OWN
    from outrider.bench.reports import to_document
    from outrider.bench.reports.table import terminal_table

    if as_json:
        typer.echo(json.dumps(to_document(report), allow_nan=False))
    else:
        console = Console(markup=False, highlight=False)
        if not console.is_terminal:  # of a file nobody knows the width
            console.width = _WIDTH
        console.print(terminal_table(report))
        for file in files:
            console.print(f"wrote {file}", soft_wrap=True)
    differs = any(row.differences for row in report.rows if row.case.engine == OWN)
    if differs or report.failures:
        raise typer.Exit(1)
