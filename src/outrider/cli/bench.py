"""`outrider bench`: drafters and peers beside plain decoding, on prompts, in turns."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer
from rich.console import Console

from outrider.cli import bench_options as own
from outrider.cli import options as cli
from outrider.cli.bar import progress_bar
from outrider.cli.chatter import chatter
from outrider.cli.lists import parse_list, parse_pairs
from outrider.errors import OptionError

if TYPE_CHECKING:
    from outrider.bench.base import Report
    from outrider.bench.benchmark import Benchmark
    from outrider.bench.options import BenchOptions
    from outrider.bench.own import OwnTarget
    from outrider.bench.pace import Progress
    from outrider.types import Rule

_DEFAULT_DRAFTERS = "none,ngram,suffix"
_WIDTH = 100

_BESIDE_REPORT_ONLY = ("report_only", "as_json")


def bench(
    ctx: typer.Context,
    out: own.OutOption = None,
    target: cli.TargetOption = cli.DEFAULT_TARGET,
    drafters: own.ComparedOption = _DEFAULT_DRAFTERS,
    workload: cli.WorkloadOption = None,
    limit: cli.LimitOption = None,
    temperature: own.TemperaturesOption = "0",
    batch: own.BatchesOption = "1",
    rules: own.RulesOption = "match",
    lossy_rules: own.LossyRulesOption = None,
    alternatives: own.AlternativesOption = None,
    max_new_tokens: cli.TokensEachOption = 128,
    repeats: own.RepeatsOption = 3,
    max_minutes: own.MaxMinutesOption = None,
    weights: own.WeightsOption = None,
    peers: own.PeersOption = None,
    peer_python: own.PeerPythonOption = None,
    peer_processes: own.PeerProcessesOption = None,
    report_only: own.ReportOnlyOption = None,
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
        from outrider.bench.reports import warn_of_missing, write_reports

        folder = _folder(ctx)
        if report_only is None:
            warn_of_missing()
            report = _benchmark(ctx.params, folder, progress).run(folder)
        else:
            from outrider.bench.outcome import read_outcome

            report = read_outcome(folder)
        files = write_reports(report, folder)
    _show(report, files, as_json)


def _folder(ctx: typer.Context) -> Path:
    """Return where records are; raises OptionError for options that do not go together."""
    out: Path | None = ctx.params["out"]
    known: Path | None = ctx.params["report_only"]
    if known is None:
        if out is None:
            raise OptionError("--out DIR is needed: where do records and reports go?")
        return out
    for option in ctx.command.params:
        name = option.name or ""
        source = ctx.get_parameter_source(name)
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and name not in _BESIDE_REPORT_ONLY:
            raise OptionError(f"--report-only measures nothing: leave out {option.opts[0]}")
    return known


def _benchmark(params: Mapping[str, Any], folder: Path, progress: Progress) -> Benchmark:
    """Return the benchmark that was asked for, targets loaded; raises OutriderError."""
    from outrider.bench.benchmark import Benchmark
    from outrider.bench.contestants import check_peers, find_peers
    from outrider.workload.files import default_workload, limited, read_workload

    options = _options(params)
    peers = parse_list("peers", params["peers"], str) if params["peers"] else ()
    pairs = parse_pairs("peer-python", params["peer_python"] or [])
    pythons = {name: Path(path) for name, path in pairs}
    check_peers(peers, pythons)
    target, workload = params["target"], params["workload"]
    prompts = default_workload() if workload is None else read_workload(workload)
    prompts = limited(prompts, params["limit"])
    targets = _load(target, options, params, progress)
    rivals = find_peers(
        peers,
        options,
        target=target,
        weights=[one.weights for one in targets if not one.model],
        device=str(targets[0].device),
        pythons=pythons,
        folder=folder,
    )
    return Benchmark(
        target=target,
        own=targets,
        options=options,
        workload=prompts,
        workload_name="built-in" if workload is None else workload.name,
        peers=rivals,
        command=shlex.join(["outrider", *sys.argv[1:]]),
        progress=progress,
    )


def _options(params: Mapping[str, Any]) -> BenchOptions:
    """Return what is compared, and how often; raises OptionError."""
    from outrider.bench.drafter_sets import parse_drafter_sets
    from outrider.bench.options import BenchOptions, parse_lossy_rules

    lossy = params["lossy_rules"]
    same = ("max_new_tokens", "repeats", "max_minutes", "peer_processes")
    return BenchOptions(
        drafter_sets=parse_drafter_sets(params["drafters"]),
        temperatures=parse_list("temperature", params["temperature"], float),
        batches=parse_list("batch", params["batch"], int),
        rules=cast("tuple[Rule, ...]", parse_list("rules", params["rules"], str)),
        lossy=() if lossy is None else parse_lossy_rules(lossy),
        **{name: params[name] for name in same},
    )


def _load(
    target: str, options: BenchOptions, params: Mapping[str, Any], progress: Progress
) -> list[OwnTarget]:
    """Load the target, once for each type of weights, and what is to stand in its place.

    Raises OptionError.
    """
    import outrider
    from outrider.bench.alternatives import load_alternative, parse_alternatives
    from outrider.bench.own import OwnTarget
    from outrider.bench.pace import Step
    from outrider.bench.weights import parse_weights, weights_of

    loading = cli.loading(params)
    kinds = [(target, loading)]
    if params["weights"] is not None:
        if "dtype" in loading:
            raise OptionError("--dtype and --weights both say how weights are held: give one")
        names = parse_list("weights", params["weights"], str)
        kinds = [(spec, loading | {"dtype": kind}) for spec, kind in parse_weights(target, names)]
    wanted = params["alternatives"]
    names = () if wanted is None else parse_list("alternatives", wanted, str)
    alternatives = parse_alternatives(kinds[0][0], names)
    room = max(options.batches)
    common = {name: loading[name] for name in ("compile", "trust_remote_code") if name in loading}
    decoders = []
    for spec, how in kinds:
        progress(Step(f"loading {spec}"))
        decoders.append(outrider.load(spec, max_batch=room, profile=False, **how))
    found = [OwnTarget(decoder, weights_of(decoder), **common) for decoder in decoders]
    for one in alternatives:
        progress(Step(f"loading {one.text}"))
        decoder = load_alternative(one, decoders[0], max_batch=room, loading=kinds[0][1])
        found.append(OwnTarget(decoder, weights_of(decoder), model=one.text, **common))
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
