"""What a user asks of a training run: which drafter, from what, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from outrider.errors import OptionError
from outrider.training.losses import find_loss

DrafterKind: TypeAlias = Literal["eagle", "medusa", "draft"]

SELF, TASKS = "self", "tasks"
"""Data that is made up: prompts the target writes itself, and prompts of many kinds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The choices of a training run that are not the optimizer's. Raises OptionError."""

    kind: DrafterKind
    data: tuple[str, ...] = (SELF, TASKS)
    """`SELF`, `TASKS`, files of prompts, answers of another run, or plain texts (see `texts`)."""
    texts: bool = False
    """Whether the files are texts to be learnt as they are, and not prompts to be answered."""
    prompts: int = 2000
    """How many prompts to make up, of each kind of data that is made up."""
    tokens: int | None = None
    """Answers end once they have so many tokens together."""
    answer_tokens: int = 256
    temperature: float = 0.0
    """Of the answers."""
    start: str | None = None
    """A trained drafter to begin with, as its folder; its shape is kept, and what ids it drafts."""
    loss: str = "hybrid"
    version: int = 3
    """Of an EAGLE head: 1 or 3."""
    steps: int = 4
    """Tokens an EAGLE-3 head drafts in training."""
    closeness: float = 0.0
    """Weight of the target's own states as what an EAGLE-3 head aims at; for little data."""
    draft_vocabulary: int | None = None
    """Token ids that are drafted, or taught, the most frequent ones.

    None: as many as the drafter that is begun with, or else 8192.
    """
    heads: int = 4
    """Of Medusa."""
    blocks: int = 1
    """Of each Medusa head; heads that were trained with fewer get more, which begin as zeros."""
    layers: int = 3
    """Of a draft model."""
    copying: bool = False
    """Whether a draft model or an EAGLE-3 head is given attention heads that copy, first of all."""
    max_tokens: int = 1024
    """Longer samples are cut."""
    batch: int = 4096
    """Tokens a batch has at most, padding included."""
    features: str | None = None
    """A file that keeps the target's states, for other epochs and runs; None keeps none."""
    features_gb: float = 20.0
    """How large that file may become, in 10^9 bytes."""
    held_out: float = 0.02
    questions: int = 20
    """Held-out prompts that the finished drafter is measured on; 0 measures nothing."""

    def __post_init__(self) -> None:
        find_loss(self.loss)
        if self.kind not in get_args(DrafterKind):
            known = ", ".join(get_args(DrafterKind))
            raise OptionError(f"kind is {self.kind!r}; it must be one of {known}")
        if not self.data:
            raise OptionError("no data is named to train on")
        if self.version not in (1, 3):
            raise OptionError(f"version is {self.version!r}; it must be 1 or 3")
        if self.kind == "eagle" and self.version == 1 and self.loss != "hybrid":
            raise OptionError(f"loss is {self.loss!r}, but EAGLE-1 has a loss of its own")
        if self.closeness and (self.kind, self.version) != ("eagle", 3):
            raise OptionError("closeness is an aim of EAGLE-3 heads only")
        if self.closeness < 0:
            raise OptionError(f"closeness is {self.closeness}, must be at least 0")
        without = self.kind == "medusa" or (self.kind, self.version) == ("eagle", 1)
        if self.copying and without:
            raise OptionError("copying heads are given to EAGLE-3 heads and draft models only")
        if self.features_gb <= 0:
            raise OptionError(f"features_gb is {self.features_gb}, must be above 0")
        least = {"prompts": 1, "answer_tokens": 4, "steps": 1, "draft_vocabulary": 1, "heads": 1}
        least |= {"blocks": 1, "layers": 1, "max_tokens": 8, "batch": 8, "questions": 0}
        for name, value in least.items():
            if (found := getattr(self, name)) is not None and found < value:
                raise OptionError(f"{name} is {found}, must be at least {value}")
        if self.texts and (SELF in self.data or TASKS in self.data):
            raise OptionError("texts are read from files; 'self' and 'tasks' are prompts")

    @property
    def files(self) -> list[Path]:
        """The files and folders among the data."""
        return [Path(name) for name in self.data if name not in (SELF, TASKS)]

    @property
    def title(self) -> str:
        """What the drafter is called on its card."""
        if self.kind == "eagle":
            return f"EAGLE-{self.version} head"
        return "Medusa heads" if self.kind == "medusa" else "Draft model"
