"""`outrider export`: write a trained drafter in the format of another program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from outrider.cli import options as cli
from outrider.cli.chatter import chatter
from outrider.errors import OptionError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from outrider.checkpoints.base import Checkpoint

HeadArgument = Annotated[
    str,
    typer.Argument(
        metavar="DRAFTER",
        help="eagle:PATH, medusa:PATH, model:PATH or PATH: the folder of a trained drafter, or the "
        "hub id of one that was downloaded.",
    ),
]
FormatOption = Annotated[
    Literal["native", "eagle", "medusa", "speculators", "transformers"],
    typer.Option(
        help="speculators: EAGLE-3 for vLLM; eagle, medusa: the original code's; transformers: a "
        "draft model with all its weights, for vLLM and others; native: ours."
    ),
]
OutOption = Annotated[
    Path, typer.Option(metavar="FOLDER", help="A new folder, written whole or not at all.")
]
MadeForOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="The target: the drafter must fit it, and its name goes into the files. By default "
        "what the drafter's own files say.",
    ),
]


def export(
    drafter: HeadArgument,
    format: FormatOption,
    out: OutOption,
    target: MadeForOption = None,
    trust_remote_code: cli.TrustOption = False,
) -> None:
    """Write a trained drafter in another format: for vLLM, or the original code's.

    Example: outrider export eagle:HEAD --format speculators --out NEW --target MODEL
    """
    with chatter():
        config = _target_config(target, trust_remote_code)
        checkpoint = _load(drafter, config)
        if target is not None:
            checkpoint = checkpoint.for_target(target)
        if format == "transformers":
            files = _write_whole(checkpoint, target, out, trust_remote_code)
        else:
            from outrider.checkpoints.write import write_checkpoint

            files = write_checkpoint(checkpoint, format, out, config)
    typer.echo(f"{checkpoint.title}, read from {checkpoint.format} format")
    for file in files:
        typer.echo(f"wrote {out / file}")


def _target_config(target: str | None, trust_remote_code: bool) -> PreTrainedConfig | None:
    if target is None:
        return None
    from outrider.targets.loading import load_config

    return load_config(target, trust_remote_code=trust_remote_code)


def _load(drafter: str, target: PreTrainedConfig | None) -> Checkpoint:
    """Read `eagle:PATH`, `medusa:PATH`, `model:PATH` or a path by itself."""
    from outrider.checkpoints.read import load_head
    from outrider.drafters.spec import TRAINED

    word, colon, path = drafter.partition(":")
    if colon and word in TRAINED:
        return load_head(path, TRAINED[word], target)
    return load_head(drafter, None, target)


def _write_whole(
    checkpoint: Checkpoint, target: str | None, out: Path, trust_remote_code: bool
) -> tuple[str, ...]:
    from outrider.checkpoints.whole import write_whole
    from outrider.targets.loading import load_model

    if target is None:
        raise OptionError(
            "transformers holds the target's embeddings and output layer: say which with --target"
        )
    loaded = load_model(target, device="cpu", trust_remote_code=trust_remote_code)
    return write_whole(checkpoint, loaded, out)
