"""A trained drafter as it is kept in files: its configuration, tensors, where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from outrider.heads.config import DraftConfig, EagleConfig, MedusaConfig

if TYPE_CHECKING:
    from torch import Tensor

    Tensors: TypeAlias = Mapping[str, Tensor]

Kind: TypeAlias = Literal["eagle", "medusa", "draft"]
HeadConfig: TypeAlias = EagleConfig | MedusaConfig | DraftConfig
Format: TypeAlias = Literal["native", "eagle", "medusa", "speculators"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Checkpoint:
    """A trained head, or draft model that shares its target's embeddings and output layer.

    Its tensors have the names `outrider.checkpoints.tensors` gives them.
    """

    config: HeadConfig
    tensors: Tensors
    format: Format = "native"
    """What it was read from."""
    target: str | None = None
    """Name of the model it was trained for, where that is known."""
    changes_target: bool = False
    """The model it was trained for was trained along: with any other, little is accepted."""

    @property
    def kind(self) -> Kind:
        """What drafts with it."""
        if isinstance(self.config, DraftConfig):
            return "draft"
        return "eagle" if isinstance(self.config, EagleConfig) else "medusa"

    @property
    def spec_word(self) -> str:
        """The word before the colon of a drafter's spec."""
        return "model" if self.kind == "draft" else self.kind

    @property
    def title(self) -> str:
        """What to call it."""
        if isinstance(self.config, EagleConfig):
            return f"EAGLE-{self.config.version}"
        if isinstance(self.config, DraftConfig):
            return "draft model"
        return "Medusa-2" if self.changes_target else "Medusa-1"

    def for_target(self, name: str) -> Checkpoint:
        """Return the same head, said to be for the target of that name."""
        config = self.config
        if isinstance(config, MedusaConfig):
            config = replace(config, base_model=name)
        return replace(self, config=config, target=name)
