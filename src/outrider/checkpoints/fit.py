"""Whether a trained head fits a target, told from their configurations before any work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from outrider.checkpoints.base import Checkpoint, HeadConfig
from outrider.errors import LoadError, VocabularyMismatchError
from outrider.heads.config import DraftConfig, EagleConfig

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def resolve(config: EagleConfig, target: PreTrainedConfig, name: str) -> EagleConfig:
    """Return the configuration with the feature layers named, if it leaves them to the target.

    Raises LoadError for a target that has too few layers for the default.
    """
    if config.feature_layers is not None:
        return config
    depth = target.get_text_config(decoder=True).num_hidden_layers
    if depth < 3:
        raise LoadError(
            f"{name} reads the target's layers 2, L / 2 and L - 3, but the target has {depth}"
        )
    return config.resolved(depth)


def check_fit(config: HeadConfig, target: PreTrainedConfig, name: str) -> None:
    """Check the sizes of a head against those of a target, both numbers in the error.

    Raises VocabularyMismatchError for token ids, LoadError for hidden states.
    """
    text = target.get_text_config(decoder=True)
    width = config.hidden_size
    if isinstance(config, EagleConfig):
        width = config.target_hidden_size
    if width != text.hidden_size:
        what = "embeddings" if isinstance(config, DraftConfig) else "hidden states"
        raise LoadError(
            f"{name} reads {what} of size {width}, but the target's have {text.hidden_size}"
        )
    if config.vocab_size != text.vocab_size:
        raise VocabularyMismatchError(
            f"{name} is for {config.vocab_size} token ids, but the target has {text.vocab_size}"
        )
    if isinstance(config, EagleConfig):
        _check_layers(resolve(config, target, name), text.num_hidden_layers, name)


def _check_layers(config: EagleConfig, depth: int, name: str) -> None:
    for layer in config.feature_layers or ():
        if layer > depth:
            raise LoadError(
                f"{name} reads what enters layer {layer}, but the target has {depth} layers"
            )


def require_own_target(checkpoint: Checkpoint, target: str, name: str) -> None:
    """Raise LoadError if the head was trained along with a model, and the target is another.

    `target` is what the user calls the target: a folder, or a name.
    """
    own = checkpoint.target
    if not checkpoint.changes_target or own is None:
        return
    paths = [Path(one).expanduser().resolve() for one in (own, target)]
    if own != target and paths[0] != paths[1]:
        raise LoadError(
            f"{name} is {checkpoint.title}: its heads belong to the model they were trained with, "
            f"which is another target than {target}; decode from that one: --target {own}"
        )
