"""The format of the original Medusa code: a few keys, and the heads in a file of their own.

FasterDecoding/Medusa. Its configurations are known to be wrong about how many heads there are, so
heads and blocks are counted in the file. Medusa-2 trained the model along with its heads: there the
heads stand among, or beside, the weights of that model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.files import (
    read_tensors,
    read_weights,
    weight_file,
    write_json,
    write_tensors,
)
from outrider.errors import LoadError, OptionError
from outrider.heads.config import MedusaConfig

if TYPE_CHECKING:
    from torch import Tensor

# Safetensors first: where both are there, the one that cannot hold code is read.
HEAD_FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")
_PREFIX = "medusa_head."
_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)")
_OUTPUT = re.compile(r"(\d+)\.(\d+)\.weight")


def read_medusa(folder: Path, values: Mapping[str, Any]) -> Checkpoint:
    """Read a folder in this format; raises LoadError, OptionError for its configuration."""
    heads, changes_target = _read_heads(folder)
    num_layers = _count_blocks(folder, heads)
    tensors = {_canonical(folder, name, num_layers): tensor for name, tensor in heads.items()}
    base = values.get("base_model_name_or_path")
    base = base if isinstance(base, str) and base else None
    config = MedusaConfig(
        **_sizes(folder, tensors), num_layers=num_layers, owns_output=True, base_model=base
    )
    return Checkpoint(
        config=config,
        tensors=tensors,
        format="medusa",
        target=str(folder) if changes_target else base,
        changes_target=changes_target,
    )


def _read_heads(folder: Path) -> tuple[dict[str, Tensor], bool]:
    """Return the heads' tensors, and whether the folder holds a model of its own as well."""
    for name in HEAD_FILES:
        if (folder / name).is_file():
            found = read_tensors(folder / name)
            return _without_prefix(found), weight_file(folder) is not None
    if weight_file(folder) is None:
        raise LoadError(f"cannot load {folder}: it holds neither {' nor '.join(HEAD_FILES)}")
    weights = read_weights(folder)
    heads = {name: tensor for name, tensor in weights.items() if name.startswith(_PREFIX)}
    if not heads:
        raise LoadError(f"cannot load {folder}: its weights hold no tensor {_PREFIX}0.0...")
    return _without_prefix(heads), len(heads) < len(weights)


def _without_prefix(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items()}


def _count_blocks(folder: Path, heads: Mapping[str, Tensor]) -> int:
    """Return how many residual blocks each head has; gaps among them show later on."""
    places = [int(block[2]) for name in heads if (block := _BLOCK.fullmatch(name)) is not None]
    if not places:
        raise LoadError(f"cannot load {folder}: its weights lack the tensor 0.0.linear.weight")
    return max(places) + 1


def _canonical(folder: Path, name: str, num_layers: int) -> str:
    if (block := _BLOCK.fullmatch(name)) is not None:
        return f"heads.{int(block[1])}.blocks.{int(block[2])}.{block[3]}"
    output = _OUTPUT.fullmatch(name)
    if output is None or int(output[2]) != num_layers:
        raise LoadError(
            f"cannot load {folder}: the tensor {name} is no part of Medusa heads "
            f"with {num_layers} residual blocks"
        )
    return f"heads.{int(output[1])}.output.weight"


def _sizes(folder: Path, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the sizes that the tensors themselves tell."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name in ("heads.0.blocks.0.weight", "heads.0.output.weight"):
        if name not in tensors or tensors[name].dim() != 2:
            raise LoadError(f"cannot load {folder}: its weights have no matrix {name}")
        shapes[name] = tuple(tensors[name].shape)
    (hidden_size, _), (vocab_size, _) = shapes.values()
    return {
        "num_heads": max(int(name.split(".")[1]) for name in tensors) + 1,
        "hidden_size": hidden_size,
        "vocab_size": vocab_size,
    }


def write_medusa(checkpoint: Checkpoint, folder: Path) -> None:
    """Write heads in this format; raises OptionError for what the format has no word for.

    They are written twice: the original code reads the .pt, most others read the safetensors.
    """
    config = checkpoint.config
    if not isinstance(config, MedusaConfig):
        raise OptionError(f"an {checkpoint.title} head cannot be written as medusa; use eagle")
    if not config.owns_output:
        raise OptionError(
            "these heads cannot be written as medusa: they share the target's output layer; "
            "use native"
        )
    if checkpoint.changes_target:
        raise OptionError(
            "these heads cannot be written as medusa: the target was trained along with them, and "
            "the file would not say so; use native"
        )
    tensors = {
        _original(name, config.num_layers): tensor for name, tensor in checkpoint.tensors.items()
    }
    write_json(
        folder,
        {
            "model_type": "medusa",
            "medusa_num_heads": config.num_heads,
            "medusa_num_layers": config.num_layers,
            "base_model_name_or_path": checkpoint.target,
            "version": "2",
        },
    )
    for name in HEAD_FILES:
        write_tensors(folder / name, tensors)


def _original(name: str, num_layers: int) -> str:
    _, head, part, *rest = name.split(".")
    if part == "output":
        return f"{head}.{num_layers}.weight"
    return f"{head}.{rest[0]}.linear.{rest[1]}"
