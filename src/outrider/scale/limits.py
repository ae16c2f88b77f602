"""What vLLM cannot do of what was asked for, said before it starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outrider.errors import OptionError
from outrider.scale.drafters import VllmDrafter
from outrider.scale.environment import TRIED, VllmEnvironment

_RULES = {
    "match": "it draws sampled tokens otherwise than plain decoding does, with the same "
    "distribution: leave the option out, or say rejection",
    "block": "one of its two runners has it, and the other passes it over without a word",
    "traversal": "it has no trees",
}
_OURS = {
    "device": "its build decides what it runs on; $CUDA_VISIBLE_DEVICES says which GPUs",
    "offload_folder": "it keeps no weights on disk",
    "lossy": "its rules are its own, and none of these is among them",
    "max_queue": "its queue has no bound: put a proxy in front that has one",
    "max_body_bytes": "put a proxy in front that limits bodies",
    "max_prompt_tokens": "it limits prompt and answer together: -- --max-model-len N",
    "max_new_tokens_limit": "it limits prompt and answer together: -- --max-model-len N",
    "prefill_rows": "its own is: -- --max-num-batched-tokens N",
    "prefix_caches": "its own are: -- --enable-prefix-caching, --no-enable-prefix-caching",
    "log_prompts": "its own is: -- --enable-log-requests",
}
_OWN = (
    *("--model", "--tokenizer", "--served-model-name", "--dtype", "--host", "--port"),
    *("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--max-num-seqs"),
    *("--allowed-origins", "--api-key", "--trust-remote-code", "--no-trust-remote-code"),
    *("--enforce-eager", "--no-enforce-eager", "--shutdown-timeout", "--additional-config"),
    *("--speculative-config", "-sc", "--spec-method", "--spec-model", "--spec-tokens"),
)
"""vLLM's options that outrider sets by options of its own."""

VLLM_ONLY = ("tensor_parallel", "pipeline_parallel", "vllm_python", "dry_run", "vllm_options")
"""Options of the command that make no sense without vLLM."""


def require_no_vllm_options(given: Iterable[str]) -> None:
    """Raise OptionError for options, as the command names them, that only vLLM has."""
    for name in given:
        if name in VLLM_ONLY:
            shown = "what comes after --" if name == "vllm_options" else _shown(name)
            raise OptionError(f"{shown} is for vLLM; it needs --engine vllm")


def require_possible(given: Iterable[str], rule: str | None, numerics: str | None) -> None:
    """Raise OptionError for options that were given and that vLLM cannot honour."""
    for name in given:
        if name in _OURS:
            raise OptionError(f"{_shown(name)} cannot be had with vLLM: {_OURS[name]}")
    if rule in _RULES:
        raise OptionError(f"rule is {rule!r}, which cannot be had with vLLM: {_RULES[rule]}")
    if numerics == "invariant":
        raise OptionError(
            "numerics is 'invariant', which cannot be had with vLLM: its bits depend on how many "
            "tokens a pass holds"
        )


def require_free(extra: Sequence[str]) -> None:
    """Raise OptionError for one of vLLM's own options that outrider sets already."""
    for argument in extra:
        if not argument.startswith("-"):
            continue
        name = argument.partition("=")[0].partition(".")[0]
        name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
        # Its parser takes any beginning of an option for the option.
        clash = next((own for own in _OWN if own == name or _abbreviates(name, own)), None)
        if clash is not None:
            raise OptionError(f"{argument!r} after -- is set by outrider's own options: {clash}")


def _abbreviates(name: str, own: str) -> bool:
    return name.startswith("--") and len(name) > len("--") and own.startswith(name)


def data_parallel(extra: Sequence[str]) -> bool:
    """Whether vLLM is asked for several replicas of the whole model, which share no schedule."""
    names = [argument.partition("=")[0].replace("_", "-") for argument in extra]
    return any(name.startswith("--data-parallel-size") or name == "-dp" for name in names)


def notes(
    environment: VllmEnvironment, drafter: VllmDrafter | None, extra: Sequence[str]
) -> list[str]:
    """Return in words how vLLM's answers and requests differ from outrider's."""
    found = []
    if not environment.version.startswith(TRIED.rpartition(".")[0]):
        found.append(f"vLLM is {environment.version}; outrider is tested with {TRIED}")
    found.append(
        "requests are vLLM's: no `speculation`, no `prediction`, no page at /, metrics of its own"
    )
    if drafter is None:
        return found
    found += [
        "greedy text is plain decoding's, up to ties in rounding; sampled text has the same "
        "distribution, but with one seed other tokens than without drafts",
        "requests with min_p or logit_bias are answered with status 400 while there is a drafter",
    ]
    if drafter.method == "ngram":
        found.append("ngram is vLLM's own drafter, which may copy other tokens than outrider's")
    if drafter.method == "suffix":
        found.append(
            "suffix runs as a class of vLLM's older runner, which schedules no pass ahead of time"
        )
        if any("ray" in argument.split("=")[-1:] for argument in extra):
            found.append(
                "for suffix, vLLM's Python on every machine of Ray needs outrider itself: "
                "pip install --no-deps outrider"
            )
    return found


def _shown(name: str) -> str:
    return "--" + name.replace("_", "-")
