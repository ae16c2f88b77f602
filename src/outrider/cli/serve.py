"""`outrider serve`: answer requests over HTTP, as OpenAI's API has them."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli import options as cli
from outrider.drafters.spec import parse_specs
from outrider.errors import OptionError

if TYPE_CHECKING:
    from outrider.decoder import Decoder

_PACKAGES = ("fastapi", "prometheus_client", "uvicorn")
_KEYS = "OUTRIDER_API_KEY"
_PREDICTION = "prediction"


def serve(
    ctx: typer.Context,
    target: cli.TargetOption = cli.DEFAULT_TARGET,
    drafter: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="none, ngram, suffix, model:MODEL, eagle:HEAD, medusa:HEAD or early-exit:LAYER; "
            "several with commas between: each round uses the best.",
        ),
    ] = cli.DEFAULT_DRAFTER,
    max_draft: cli.MaxDraftOption = None,
    rule: cli.RuleOption = None,
    dtype: cli.DtypeOption = None,
    device: cli.DeviceOption = None,
    offload_folder: cli.OffloadFolderOption = None,
    numerics: cli.NumericsOption = None,
    compile: cli.CompileOption = None,
    trust_remote_code: cli.TrustOption = False,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 for all.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", help="Port to listen on; 0 for any free one.")
    ] = 8000,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What requests call the model; as --target by default."),
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="A key that requests must bear; repeatable. Also $OUTRIDER_API_KEY, with commas "
            "between several. Without any key all requests are answered.",
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="A web site whose pages may send requests; repeatable; * is all."
        ),
    ] = None,
    max_batch: Annotated[
        int, typer.Option(metavar="N", help="Most answers that are written at a time.")
    ] = 8,
    max_queue: Annotated[
        int, typer.Option(metavar="N", help="Most answers that wait; more are told to come again.")
    ] = 64,
    max_body_bytes: Annotated[int, typer.Option(metavar="N", help="Largest body of a request.")] = 2
    ** 20,
    max_prompt_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="Longest prompt; as long as the model takes by default."),
    ] = None,
    max_new_tokens_limit: Annotated[
        int,
        typer.Option(metavar="N", help="Longest answer; a chat that sets no limit gets this one."),
    ] = 2048,
    prefill_rows: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Tokens of long prompts that are read between rounds of other answers.",
        ),
    ] = 256,
    prefix_caches: Annotated[
        int,
        typer.Option(
            metavar="N", help="Caches kept of finished answers, for prompts that begin alike."
        ),
    ] = 8,
    drain_seconds: Annotated[
        float,
        typer.Option(
            metavar="S", help="After SIGTERM, how long answers that were begun may take to end."
        ),
    ] = 30.0,
    log_prompts: Annotated[
        bool, typer.Option("--log-prompts", help="Write the bodies of requests to the log.")
    ] = False,
) -> None:
    """Answer requests over HTTP as OpenAI's API has them, drafting whenever it pays.

    A page to try it is at the server's root. What `outrider tune` measured is used. SIGTERM lets
    answers end and takes no more; a second one ends all at once.

    Example: outrider serve --drafter suffix,eagle --port 8000
    """
    _require_packages()
    from outrider.server.logs import json_logs
    from outrider.server.run import bind
    from outrider.server.run import serve as run
    from outrider.server.settings import ServerSettings

    settings = ServerSettings(
        model=target if name is None else name,
        api_keys=(*(api_key or ()), *_keys_from_environment()),
        cors_origins=tuple(cors_origin or ()),
        max_body_bytes=max_body_bytes,
        max_prompt_tokens=max_prompt_tokens,
        max_new_tokens=max_new_tokens_limit,
        max_queue=max_queue,
        prefill_rows=prefill_rows,
        max_prefixes=prefix_caches,
        drain_seconds=drain_seconds,
        log_prompts=log_prompts,
    )
    loading = cli.loading(ctx.params) | {"drafter": _with_prediction(drafter)}
    listener = bind(host, port)

    def load() -> Decoder:
        import outrider

        return outrider.load(target, max_batch=max_batch, **loading)

    with listener, json_logs():
        run(load, settings, listener, on_ready=lambda: typer.echo(_listening(listener, drafter)))


def _require_packages() -> None:
    try:
        for name in _PACKAGES:
            import_module(name)
    except ImportError as error:
        raise OptionError(
            f"serve needs the package {error.name}: pip install outrider[server]"
        ) from error


def _keys_from_environment() -> list[str]:
    return [key for key in os.environ.get(_KEYS, "").split(",") if key]


def _with_prediction(drafter: str) -> str:
    """Add the drafter for what requests predict, unless nothing is to be drafted."""
    specs = parse_specs(drafter)
    for spec in specs:
        if spec.kind == _PREDICTION and spec.argument is not None:
            raise OptionError(f"drafter {drafter!r} names a file; requests bring their predictions")
    kinds = {spec.kind for spec in specs}
    return drafter if kinds & {"none", _PREDICTION} else f"{drafter},{_PREDICTION}"


def _listening(listener: Any, drafter: str) -> str:
    host, port, *_ = listener.getsockname()
    address = f"[{host}]" if ":" in host else host
    return f"listening on http://{address}:{port} (drafter: {drafter})"
