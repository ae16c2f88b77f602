"""`outrider serve`: answer requests over HTTP, as OpenAI's API has them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer

from outrider.cli import options as cli
from outrider.cli import serve_options as own
from outrider.cli.chatter import chatter
from outrider.drafters.spec import parse_specs
from outrider.errors import OptionError

if TYPE_CHECKING:
    from outrider.decoder import Decoder
    from outrider.scale.plan import VllmOptions
    from outrider.server.settings import ServerSettings
    from outrider.types import Rule

_PACKAGES = ("fastapi", "prometheus_client", "uvicorn")
_KEYS = "OUTRIDER_API_KEY"
_PREDICTION = "prediction"
_SETTINGS = {
    "max_body_bytes": "max_body_bytes",
    "max_prompt_tokens": "max_prompt_tokens",
    "max_new_tokens_limit": "max_new_tokens",
    "max_queue": "max_queue",
    "prefill_rows": "prefill_rows",
    "prefix_caches": "max_prefixes",
    "drain_seconds": "drain_seconds",
    "log_prompts": "log_prompts",
}
"""Options that are fields of ServerSettings as they stand, and their names there."""


def serve(
    ctx: typer.Context,
    vllm_options: own.VllmArgument = None,
    target: cli.TargetOption = cli.DEFAULT_TARGET,
    drafter: own.DrafterOption = cli.DEFAULT_DRAFTER,
    max_draft: cli.MaxDraftOption = None,
    rule: cli.RuleOption = None,
    lossy: cli.LossyOption = None,
    dtype: cli.DtypeOption = None,
    device: cli.DeviceOption = None,
    offload_folder: cli.OffloadFolderOption = None,
    numerics: cli.NumericsOption = None,
    compile: cli.CompileOption = None,
    trust_remote_code: cli.TrustOption = False,
    host: own.HostOption = "127.0.0.1",
    port: own.PortOption = 8000,
    name: own.NameOption = None,
    api_key: own.ApiKeyOption = None,
    cors_origin: own.CorsOriginOption = None,
    max_batch: own.MaxBatchOption = 8,
    max_queue: own.MaxQueueOption = 64,
    max_body_bytes: own.MaxBodyOption = 2**20,
    max_prompt_tokens: own.MaxPromptOption = None,
    max_new_tokens_limit: own.MaxAnswerOption = 2048,
    prefill_rows: own.PrefillRowsOption = 256,
    prefix_caches: own.PrefixCachesOption = 8,
    drain_seconds: own.DrainOption = 30.0,
    log_prompts: own.LogPromptsOption = False,
    engine: own.EngineOption = "outrider",
    tensor_parallel: own.TensorParallelOption = 1,
    pipeline_parallel: own.PipelineParallelOption = 1,
    vllm_python: own.VllmPythonOption = None,
    dry_run: own.DryRunOption = False,
) -> None:
    """Answer requests over HTTP as OpenAI's API has them, drafting whenever it pays.

    A page to try it is at the server's root. What `outrider tune` measured is used. SIGTERM lets
    answers end and takes no more; a second one ends all at once.

    With --engine vllm, vLLM's own server answers instead: over several GPUs and machines, and with
    what it can of this target, drafter and options.

    Example: outrider serve --drafter suffix,eagle --port 8000
    """
    if engine == "vllm":
        _serve_vllm(ctx)
    else:
        _serve(ctx)


def _serve(ctx: typer.Context) -> None:
    """Answer with outrider's own engine."""
    from outrider.scale.limits import require_no_vllm_options

    require_no_vllm_options(_given(ctx))
    _require_packages()
    from outrider.server.logs import json_logs
    from outrider.server.run import bind
    from outrider.server.run import serve as run

    params = ctx.params
    target, drafter, lossy = params["target"], params["drafter"], params["lossy"]
    _require_one_rule(params["rule"], lossy)
    settings = _settings(params)
    loading = cli.loading(params) | {"drafter": _with_prediction(drafter)}
    listener = bind(params["host"], params["port"])

    def load() -> Decoder:
        import outrider

        return outrider.load(target, max_batch=params["max_batch"], **loading)

    ready = partial(_say_ready, listener, drafter, lossy)
    with listener, json_logs():
        run(load, settings, listener, on_ready=ready)


def _serve_vllm(ctx: typer.Context) -> None:
    """Start vLLM's server, having said what it cannot do, and leave with its exit code."""
    from outrider.scale.limits import require_possible
    from outrider.scale.plan import plan_launch

    require_possible(_given(ctx), ctx.params["rule"], ctx.params["numerics"])
    with chatter():
        launch = plan_launch(_vllm_options(ctx))
    if ctx.params["dry_run"]:
        typer.echo(json.dumps(launch.to_dict(), indent=2))
        return
    from outrider.scale.child import run_child
    from outrider.scale.environment import all_variables

    for note in launch.notes:
        _note(note)
    variables = all_variables(launch.variables)
    code = run_child(launch.command, variables, launch.drain_seconds, on_note=_note)
    raise typer.Exit(code)


def _settings(params: Mapping[str, Any]) -> ServerSettings:
    from outrider.server.settings import ServerSettings

    return ServerSettings(
        model=params["target"] if params["name"] is None else params["name"],
        api_keys=_keys(params),
        cors_origins=tuple(params["cors_origin"] or ()),
        **{field: params[option] for option, field in _SETTINGS.items()},
    )


def _vllm_options(ctx: typer.Context) -> VllmOptions:
    from outrider.scale.plan import VllmOptions

    params = ctx.params
    return VllmOptions(
        target=params["target"],
        drafter=params["drafter"],
        python=params["vllm_python"],
        max_draft=cli.parse_max_draft(params["max_draft"] or "auto"),
        dtype=params["dtype"] or "auto",
        is_eager=params["compile"] is False,
        trust_remote_code=params["trust_remote_code"],
        tensor_parallel=params["tensor_parallel"],
        pipeline_parallel=params["pipeline_parallel"],
        max_batch=params["max_batch"] if "max_batch" in _given(ctx) else None,
        host=params["host"],
        port=params["port"],
        name=params["name"],
        api_keys=_keys(params),
        cors_origins=tuple(params["cors_origin"] or ()),
        drain_seconds=params["drain_seconds"],
        extra=tuple(params["vllm_options"] or ()),
    )


def _given(ctx: typer.Context) -> list[str]:
    """Return the names of the options that the user gave, whatever they said."""
    found = []
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT"):
            found.append(name)
    return found


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def _require_one_rule(rule: Rule | None, lossy: str | None) -> None:
    """Raise OptionError for a lossy rule that is none, or that has another rule beside it."""
    from outrider.engine.engine import require_one_rule
    from outrider.verification.lossy import parse_lossy

    if lossy is not None:
        require_one_rule(rule or "match", parse_lossy(lossy))


def _require_packages() -> None:
    try:
        for name in _PACKAGES:
            import_module(name)
    except ImportError as error:
        raise OptionError(
            f"serve needs the package {error.name}: pip install outrider[server]"
        ) from error


def _keys(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys that were given as options or in the environment."""
    in_environment = [key for key in os.environ.get(_KEYS, "").split(",") if key]
    return (*(params["api_key"] or ()), *in_environment)


def _with_prediction(drafter: str) -> str:
    """Add the drafter for what requests predict, unless nothing is to be drafted."""
    specs = parse_specs(drafter)
    for spec in specs:
        if spec.kind == _PREDICTION and spec.argument is not None:
            raise OptionError(f"drafter {drafter!r} names a file; requests bring their predictions")
    kinds = {spec.kind for spec in specs}
    return drafter if kinds & {"none", _PREDICTION} else f"{drafter},{_PREDICTION}"


def _say_ready(listener: Any, drafter: str, lossy: str | None) -> None:
    host, port, *_ = listener.getsockname()
    address = f"[{host}]" if ":" in host else host
    told = f"drafter: {drafter}" if lossy is None else f"drafter: {drafter}, LOSSY {lossy}"
    typer.echo(f"listening on http://{address}:{port} ({told})")
