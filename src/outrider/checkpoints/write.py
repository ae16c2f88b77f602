"""Writing a trained drafter, in the format asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

from outrider.checkpoints.base import Checkpoint, Format
from outrider.checkpoints.eagle import write_eagle
from outrider.checkpoints.files import new_folder
from outrider.checkpoints.medusa import write_medusa
from outrider.checkpoints.native import write_native
from outrider.checkpoints.speculators import write_speculators
from outrider.checkpoints.tensors import require_tensors
from outrider.errors import OptionError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def write_checkpoint(
    checkpoint: Checkpoint,
    format: Format,
    folder: Path,
    target: PreTrainedConfig | None = None,
) -> tuple[str, ...]:
    """Write a head to a new folder, all of it or nothing; return the names of the files.

    `target` tells the speculators format the classes of the target, where it is known. Raises
    OptionError for what the format cannot say and a folder that is not empty, LoadError for
    tensors that are not those of the configuration.
    """
    if format not in get_args(Format):
        raise OptionError(f"format {format!r} is unknown; known are {', '.join(get_args(Format))}")
    if checkpoint.kind == "draft" and format != "native":
        raise OptionError(
            f"a draft model cannot be written as {format}; it can as native, or as transformers"
        )
    require_tensors(checkpoint.config, checkpoint.tensors, "the head")
    with new_folder(folder) as building:
        if format == "native":
            write_native(checkpoint, building)
        elif format == "eagle":
            write_eagle(checkpoint, building)
        elif format == "medusa":
            write_medusa(checkpoint, building)
        else:
            classes = [] if target is None else (target.architectures or [])
            write_speculators(checkpoint, building, classes)
        return tuple(sorted(path.name for path in building.iterdir()))
