"""outrider's own format: the configuration and the tensors as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.files import WEIGHTS, read_weights, write_json, write_tensors
from outrider.errors import LoadError
from outrider.heads.config import DraftConfig, EagleConfig, MedusaConfig

KEY = "outrider_head"
"""The key of config.json that tells this format; its value is the kind of head."""
_VERSION = 1
_CONFIGS: dict[str, type[EagleConfig] | type[MedusaConfig] | type[DraftConfig]] = {
    "eagle": EagleConfig,
    "medusa": MedusaConfig,
    "draft": DraftConfig,
}
_KEYS = frozenset({KEY, "format_version", "target", "changes_target", "head"})


def read_native(folder: Path, values: Mapping[str, Any]) -> Checkpoint:
    """Read a folder in this format; raises LoadError, OptionError for its configuration."""
    kind, version, head = values[KEY], values.get("format_version"), values.get("head")
    if kind not in _CONFIGS:
        known = "eagle, medusa or draft"
        raise LoadError(f"cannot load {folder}: {KEY} is {kind!r}; it must be {known}")
    if version != _VERSION:
        raise LoadError(f"cannot load {folder}: its format_version is {version}, not {_VERSION}")
    for key in values.keys() - _KEYS:
        raise LoadError(f"cannot load {folder}: config.json has the unknown key {key}")
    if not isinstance(head, dict):
        raise LoadError(f"cannot load {folder}: config.json has no configuration of the head")
    return Checkpoint(
        config=_CONFIGS[kind].from_dict(head),
        tensors=read_weights(folder),
        format="native",
        target=values.get("target"),
        changes_target=values.get("changes_target") is True,
    )


def write_native(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a head in this format."""
    write_json(
        folder,
        {
            KEY: checkpoint.kind,
            "format_version": _VERSION,
            "target": checkpoint.target,
            "changes_target": checkpoint.changes_target,
            "head": checkpoint.config.to_dict(),
        },
    )
    write_tensors(folder / WEIGHTS, checkpoint.tensors)
