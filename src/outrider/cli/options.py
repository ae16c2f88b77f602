"""The options of the commands: their names and help, and how what was given is passed on."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from outrider.errors import OptionError, PromptError

DEFAULT_TARGET = "smollm2-135m"
DEFAULT_DRAFTER = "suffix"
DEFAULT_TUNED = "suffix,ngram"

PromptArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PROMPT", help="The prompt; '-' reads it from stdin, less one final line break."
    ),
]
InputOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A file in place of the prompt: text, less one final line break; or the recording "
        "that a speech model hears, a WAV file.",
    ),
]
LanguageOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The language spoken, such as de or german; heard if it is not given.",
    ),
]
TaskOption = Annotated[
    str | None,
    typer.Option(metavar="TASK", help="What becomes of speech: transcribe, or translate."),
]
TargetOption = Annotated[
    str,
    typer.Option(metavar="MODEL", help="Alias, hub id, folder or .gguf file of the target."),
]
_PREDICTION = "prediction:FILE (the output you expect)"
OTHER_DRAFTERS = (
    "model:MODEL (?way=tokens or ?way=text after it: how one with another tokenizer drafts; "
    "?encoder=shared: it hears by the target's), eagle:HEAD, medusa:HEAD or early-exit:LAYER; "
    "model, eagle and medusa alone: what comes with the target"
)
SEVERAL_DRAFTERS = "; several with commas between: each round uses the best."
_DRAFTERS = f"none, ngram, suffix, grammar, {_PREDICTION}, {OTHER_DRAFTERS}"
OneDrafterOption = Annotated[str, typer.Option(metavar="SPEC", help=f"{_DRAFTERS}.")]
DraftersOption = Annotated[str, typer.Option(metavar="SPEC", help=f"{_DRAFTERS}{SEVERAL_DRAFTERS}")]
MaxDraftOption = Annotated[
    str | None,
    typer.Option(
        metavar="auto|N",
        help="auto (the default) drafts as far as it pays, or not at all; N drafts up to N tokens "
        "every round.",
    ),
]
RuleOption = Annotated[
    Literal["match", "rejection", "block", "traversal"] | None,
    typer.Option(help="How drafts are verified; match keeps every token the same."),
]
LossyOption = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="Let drafts pass that are not the target's words, so that the text differs from its "
        "own: lenience:L, typical:EPSILON,DELTA or fly:WINDOW,ENTROPY. Every output says so.",
    ),
]
TemperatureOption = Annotated[
    float | None, typer.Option(metavar="X", help="Sampling temperature; 0 is greedy.")
]
TopKOption = Annotated[
    int | None, typer.Option(metavar="N", help="Sample from the N likeliest tokens; 0 is off.")
]
TopPOption = Annotated[
    float | None, typer.Option(metavar="X", help="Sample from the likeliest share X; 1 is off.")
]
MinPOption = Annotated[
    float | None,
    typer.Option(metavar="X", help="Drop tokens below X times the likeliest; 0 is off."),
]
RepetitionOption = Annotated[
    float | None, typer.Option(metavar="X", help="Divide the scores of seen tokens; 1 is off.")
]
PresenceOption = Annotated[
    float | None, typer.Option(metavar="X", help="Lower tokens already in the answer, once.")
]
FrequencyOption = Annotated[
    float | None, typer.Option(metavar="X", help="Lower them for each time they occur.")
]
LogitBiasOption = Annotated[
    list[str] | None,
    typer.Option(metavar="ID=BIAS", help="Add BIAS to the score of token ID; repeatable."),
]
StopOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End before this text; repeatable."),
]
JsonSchemaOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write JSON that the schema in FILE accepts."),
]
RegexOption = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Write what a regular expression matches as a whole."),
]
GrammarOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write what a grammar accepts: Lark, or GBNF in *.gbnf."),
]
SeedOption = Annotated[int | None, typer.Option(metavar="N", help="Seed of the sampling.")]
MaxNewTokensOption = Annotated[int | None, typer.Option(metavar="N", help="Most tokens to write.")]
TokensEachOption = Annotated[int, typer.Option(metavar="N", help="Most tokens to write a prompt.")]
LogprobsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="With --json: log-probabilities of each token and of the N likeliest."
    ),
]
RawOption = Annotated[
    bool, typer.Option("--raw", help="Continue the prompt as it is, without a chat template.")
]
DtypeOption = Annotated[
    str | None, typer.Option(metavar="TYPE", help="auto, float32, bfloat16 or float16.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE", help="cpu, cuda, cuda:1, ..., or auto: over GPU, CPU and disk as it fits."
    ),
]
OffloadFolderOption = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="With --device auto: where weights on disk are put."),
]
CompileOption = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile",
        help="Compile the passes of the target, once, in minutes; or do not use what was compiled "
        "before.",
        show_default=False,
    ),
]
NumericsOption = Annotated[
    Literal["fast", "invariant"] | None,
    typer.Option(help="invariant: the same bits however many tokens a pass holds."),
]
TrustOption = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
]
CompareOption = Annotated[
    bool,
    typer.Option("--compare", help="Also decode plainly: speedup, and whether tokens are equal."),
]
CompileFirstOption = Annotated[
    bool,
    typer.Option(
        "--compile/--no-compile",
        help="Compile the passes of the target first, once, in minutes; or measure them as they "
        "are.  [default: compile]",
        show_default=False,
    ),
]
ExplainOption = Annotated[
    bool,
    typer.Option(
        "--explain", help="Also show how far each round drafted, what it gained, and why."
    ),
]
_PROMPT_FILE = (
    "a .jsonl file (prompt, messages or turns in each line) or one prompt a line; eighteen of our "
    "own by default."
)
WorkloadOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help=f"Prompts to try: {_PROMPT_FILE}")
]
PromptsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help=f"Prompts to answer: {_PROMPT_FILE}")
]
LimitOption = Annotated[
    int | None, typer.Option(metavar="N", help="Try the first N prompts of the workload only.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


LOADING = (
    "drafter",
    "max_draft",
    "rule",
    "lossy",
    "dtype",
    "device",
    "offload_folder",
    "numerics",
    "compile",
    "trust_remote_code",
)
"""Options that go to `outrider.load`."""

SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "seed",
    "max_new_tokens",
    "logprobs",
)
"""Options that are fields of SamplingParams as they stand."""

SPEECH = ("language", "task")
"""Options of speech models."""


def given(params: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the named options that have a value: the others keep the model's own defaults."""
    return {name: params[name] for name in names if params[name] not in (None, [], ())}


def read_prompt(argument: str | None, file: Path | None = None) -> str:
    """Return the prompt, from stdin if the argument is "-", or from a file.

    Raises PromptError if it is no text, and OptionError unless there is one of the two.
    """
    if (argument is None) == (file is None):
        raise OptionError("give either a prompt or --input FILE")
    try:
        if argument is None:
            return _read_text(cast("Path", file)).removesuffix("\n")
        text = sys.stdin.read().removesuffix("\n") if argument == "-" else argument
        text.encode()
    except UnicodeError as error:
        raise PromptError(f"the prompt is not text in UTF-8: {error}") from error
    return text


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"--input {str(path)!r} cannot be read: {error.strerror}") from error


def loading(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `outrider.load` is to be given; raises OptionError."""
    options = given(params, (name for name in LOADING if name in params))
    if "max_draft" in options:
        options["max_draft"] = parse_max_draft(options["max_draft"])
    return options


def parse_max_draft(text: str) -> int | Literal["auto"]:
    """Turn "auto" or "N" into what it means; raises OptionError for anything else."""
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError as error:
        raise OptionError(f"--max-draft {text!r} is neither auto nor a number of tokens") from error


def parse_logit_bias(pairs: Sequence[str]) -> dict[int, float]:
    """Turn ["ID=BIAS", ...] into a mapping; raises OptionError for anything else."""
    biases: dict[int, float] = {}
    for pair in pairs:
        token, _, bias = pair.partition("=")
        try:
            token_id, value = int(token), float(bias)
        except ValueError as error:
            raise OptionError(f"--logit-bias {pair!r} is not ID=BIAS, e.g. 42=-1.5") from error
        if token_id in biases:
            raise OptionError(f"--logit-bias is given twice for token {token_id}")
        biases[token_id] = value
    return biases
