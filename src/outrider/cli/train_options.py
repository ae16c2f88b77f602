"""The options of `outrider train`: their names and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

KindArgument = Annotated[
    Literal["eagle", "medusa", "draft"],
    typer.Argument(metavar="eagle|medusa|draft", help="What to train."),
]
DataOption = Annotated[
    str,
    typer.Option(
        metavar="DATA",
        help="self (the target writes prompts), tasks (made-up prompts of many kinds), files of "
        "prompts (JSON lines), or the answers.jsonl of another run; several with commas between.",
    ),
]
TextsOption = Annotated[
    bool, typer.Option("--texts", help="The files hold texts, to be learnt as they are.")
]
OutOption = Annotated[Path, typer.Option(metavar="DIR", help="The folder of the run.")]
LossOption = Annotated[
    Literal["hybrid", "forward-kl", "total-variation", "cross-entropy"],
    typer.Option(help="What is lowered; hybrid and total-variation aim at acceptance."),
]
PromptsOption = Annotated[int, typer.Option(metavar="N", help="Prompts to make up, of each kind.")]
TokensOption = Annotated[
    int | None, typer.Option(metavar="N", help="Stop answering after so many tokens.")
]
AnswerTokensOption = Annotated[int, typer.Option(metavar="N", help="Longest answer, in tokens.")]
TemperatureOption = Annotated[float, typer.Option(metavar="X", help="Temperature of the answers.")]
StartOption = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="FOLDER", help="Begin with a trained drafter, and keep its shape."
    ),
]
VersionOption = Annotated[int, typer.Option(metavar="3|1", help="Version of an EAGLE head.")]
StepsOption = Annotated[
    int, typer.Option(metavar="N", help="Tokens an EAGLE-3 head drafts in training.")
]
ClosenessOption = Annotated[
    float,
    typer.Option(
        metavar="X",
        help="Weight of the target's own states as a second aim of an EAGLE-3 head; helps "
        "where data is scarce.",
    ),
]
DraftVocabularyOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Token ids that are drafted: the most frequent. As many as before with --from, or "
        "else 8192.",
    ),
]
HeadsOption = Annotated[int, typer.Option(metavar="N", help="Medusa heads.")]
BlocksOption = Annotated[
    int, typer.Option(metavar="N", help="Residual blocks of each Medusa head.")
]
LayersOption = Annotated[int, typer.Option(metavar="N", help="Layers of a draft model.")]
CopyingOption = Annotated[
    bool,
    typer.Option(
        "--copying",
        help="First give it attention heads that copy what recurs in a text (eagle, draft).",
    ),
]
EpochsOption = Annotated[
    int | None, typer.Option(metavar="N", help="Rounds through the data; 1 by default.")
]
MaxStepsOption = Annotated[int | None, typer.Option(metavar="N", help="Steps at most.")]
MaxHoursOption = Annotated[
    float | None, typer.Option(metavar="X", help="Hours of learning at most.")
]
OptimizerOption = Annotated[
    Literal["adamw", "muon"],
    typer.Option(help="What goes along the gradients; muon takes matrices further in a step."),
]
LearningRateOption = Annotated[float, typer.Option(metavar="X", help="Highest learning rate.")]
BatchOption = Annotated[int, typer.Option(metavar="N", help="Tokens in a batch, at most.")]
MaxTokensOption = Annotated[int, typer.Option(metavar="N", help="Cut longer samples.")]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Keep the target's hidden states in FILE: other epochs, and runs that learn from "
        "the same answers, read them there.",
    ),
]
FeaturesGbOption = Annotated[
    float, typer.Option(metavar="X", help="With --features: the most FILE may hold.")
]
Bf16Option = Annotated[bool, typer.Option("--bf16", help="Compute products in bfloat16.")]
SeedOption = Annotated[int, typer.Option(metavar="N", help="Seed of all that is random.")]
QuestionsOption = Annotated[
    int, typer.Option(metavar="N", help="Held-out prompts to measure the drafter on.")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR.")]
MaxBatchOption = Annotated[int, typer.Option(metavar="N", help="Prompts answered at a time.")]
