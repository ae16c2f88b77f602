"""What is started in outrider's place: vLLM's own server, with a target and a drafter of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from outrider.drafters.spec import DrafterSpec
from outrider.errors import OptionError
from outrider.scale.drafters import VllmDrafter, choose_drafter, prepare_drafter
from outrider.scale.drafting import Drafting, plan_drafting
from outrider.scale.environment import VllmEnvironment, find_vllm, package_folder
from outrider.scale.limits import data_parallel, notes, require_free
from outrider.targets.sources import Source, find_source

if TYPE_CHECKING:
    import torch

_MODULE = "vllm.entrypoints.openai.api_server"
_DTYPES = ("float32", "bfloat16", "float16")
_SECRETS = frozenset({"VLLM_API_KEY"})
_DEFAULT_REQUESTS = 256
"""Requests that vLLM lets share a pass where nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """What a user asks of vLLM; raises OptionError for a value out of its range."""

    target: str
    drafter: str
    python: Path | None = None
    max_draft: int | Literal["auto"] = "auto"
    dtype: str = "auto"
    is_eager: bool = False
    trust_remote_code: bool = False
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    max_batch: int | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    name: str | None = None
    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    drain_seconds: float = 30.0
    extra: tuple[str, ...] = ()
    """Options of vLLM's server, as they are."""

    def __post_init__(self) -> None:
        for name in ("tensor_parallel", "pipeline_parallel", "max_batch", "drain_seconds"):
            value, least = getattr(self, name), 0 if name == "drain_seconds" else 1
            if value is not None and value < least:
                raise OptionError(f"{name} is {value}; it must be at least {least}")
        if not 1 <= self.port < 2**16:
            raise OptionError(f"port is {self.port}; with vLLM it must be from 1 to {2**16 - 1}")
        if self.max_draft != "auto" and self.max_draft < 0:
            raise OptionError(f"max_draft is {self.max_draft}; it must be 'auto' or at least 0")
        if len(self.api_keys) > 1:
            raise OptionError(
                f"api-key is given {len(self.api_keys)} times; vLLM takes one from its environment"
            )
        if not all(self.api_keys):
            raise OptionError("api-key is empty; leave it out for a server without keys")
        require_free(self.extra)


@dataclass(frozen=True, slots=True)
class Launch:
    """A command, what its processes are told, and what a user should know before it starts."""

    command: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those beyond the ones of this process."""
    speculative: Mapping[str, Any] | None = None
    """vLLM's `speculative_config`; None is plain decoding."""
    notes: tuple[str, ...] = ()
    drain_seconds: float = 30.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; a key is not among them."""
        shown = {k: "(secret)" if k in _SECRETS else v for k, v in self.variables.items()}
        speculative = None if self.speculative is None else dict(self.speculative)
        return {
            "command": list(self.command),
            "environment": shown,
            "speculative_config": speculative,
            "notes": list(self.notes),
        }


def plan_launch(options: VllmOptions) -> Launch:
    """Plan vLLM's server; exports are made, and kept in outrider's cache.

    Whatever can be refused is refused here: raises OptionError for what vLLM cannot do, LoadError
    for what is missing, VocabularyMismatchError for a draft model of other token ids.
    """
    spec = choose_drafter(options.drafter)
    source = _source(options.target)
    environment = find_vllm(options.python)
    dtype = _dtype(options, source, environment)
    drafter = None
    if spec is not None and options.max_draft != 0:
        _require_python(spec, environment)
        drafter = prepare_drafter(
            spec, options.target, dtype, trust_remote_code=options.trust_remote_code
        )
    drafting = _drafting(options, drafter, dtype, environment)
    used = None if drafting.config is None else drafter
    return Launch(
        command=_command(options, source, dtype, environment, drafting),
        variables=_variables(options, used),
        speculative=drafting.config,
        notes=(*notes(environment, used, options.extra), *drafting.notes),
        drain_seconds=options.drain_seconds,
    )


def _source(target: str) -> Source:
    source = find_source(target)
    if source.quantization is not None:
        raise OptionError(
            f"target {target!r} has weights of eight bits, which are outrider's own: vLLM reads "
            "none"
        )
    return source


def _require_python(spec: DrafterSpec, environment: VllmEnvironment) -> None:
    if spec.kind == "suffix" and not environment.runs_outrider:
        version = ".".join(map(str, environment.python_version))
        raise OptionError(
            f"drafter 'suffix' needs Python 3.11 or newer where vLLM is, and there it is {version}"
        )


def _drafting(
    options: VllmOptions,
    drafter: VllmDrafter | None,
    dtype: torch.dtype | None,
    environment: VllmEnvironment,
) -> Drafting:
    if drafter is None:
        return Drafting()
    return plan_drafting(
        drafter,
        options.target,
        max_draft=options.max_draft,
        dtype=None if dtype is None else str(dtype).removeprefix("torch."),
        is_cpu=environment.is_cpu,
        most_requests=options.max_batch or _DEFAULT_REQUESTS,
        by_batch=not data_parallel(options.extra),
    )


def _dtype(
    options: VllmOptions, source: Source, environment: VllmEnvironment
) -> torch.dtype | None:
    """Return the dtype of the weights, None if neither the user nor the files say.

    What vLLM itself takes "auto" for is half precision, also for weights of float32: another model.
    """
    import torch

    from outrider.targets.devices import expanded_dtype, parse_dtype
    from outrider.targets.loading import load_config

    chosen = parse_dtype(options.dtype)
    if chosen is not None:
        return chosen
    if source.gguf is not None:
        return expanded_dtype(torch.device("cpu" if environment.is_cpu else "cuda"))
    config = load_config(options.target, trust_remote_code=options.trust_remote_code)
    own = getattr(config.get_text_config(decoder=True), "dtype", None)
    if own is not None and str(own).removeprefix("torch.") not in _DTYPES:
        raise OptionError(
            f"target {options.target!r} has weights of {own}, which vLLM does not compute in; "
            f"dtype must be one of {', '.join(_DTYPES)}"
        )
    return own if isinstance(own, torch.dtype) else None


def _command(
    options: VllmOptions,
    source: Source,
    dtype: torch.dtype | None,
    environment: VllmEnvironment,
    drafting: Drafting,
) -> tuple[str, ...]:
    weights, described = source.weights(dtype), source.description()
    found = [str(environment.python), "-m", _MODULE, "--model", weights]
    if described != weights:
        found += ["--tokenizer", described]
    found += ["--served-model-name", options.name or options.target]
    found += ["--dtype", "auto" if dtype is None else str(dtype).removeprefix("torch.")]
    found += ["--host", options.host, "--port", str(options.port)]
    found += ["--allowed-origins", json.dumps(list(options.cors_origins))]
    found += ["--shutdown-timeout", str(round(options.drain_seconds))]
    for flag, number in (
        ("--tensor-parallel-size", options.tensor_parallel),
        ("--pipeline-parallel-size", options.pipeline_parallel),
    ):
        if number > 1:
            found += [flag, str(number)]
    if options.max_batch is not None:
        found += ["--max-num-seqs", str(options.max_batch)]
    if options.is_eager:
        found.append("--enforce-eager")
    if options.trust_remote_code:
        found.append("--trust-remote-code")
    if drafting.config is not None:
        found += ["--speculative-config", json.dumps(drafting.config)]
    if drafting.additional is not None:
        found += ["--additional-config", json.dumps(drafting.additional)]
    return (*found, *options.extra)


def _variables(options: VllmOptions, drafter: VllmDrafter | None) -> dict[str, str]:
    found: dict[str, str] = {}
    if options.api_keys:
        found["VLLM_API_KEY"] = options.api_keys[0]  # arguments show in lists of processes
    if drafter is not None and drafter.method == "suffix":
        found["PYTHONPATH"] = str(package_folder())
    return found
