"""Reading and writing the files of a head, with one line for whatever is wrong with them.

Pickles are read only as far as they hold tensors: nothing in a file is ever run.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from outrider.errors import LoadError, OptionError

if TYPE_CHECKING:
    from torch import Tensor

    from outrider.checkpoints.base import Tensors

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
_INDEXED = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
# Safetensors first: where both are there, the one that cannot hold code is read.
_KNOWN = (WEIGHTS, _INDEXED[0], "pytorch_model.bin", _INDEXED[1])


def read_json(folder: Path, name: str = CONFIG) -> dict[str, Any]:
    """Read a JSON object; raises LoadError naming the file and what is wrong with it."""
    path = folder / name
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LoadError(f"cannot load {folder}: {name}: {reason}") from error
    except ValueError as error:
        raise LoadError(f"cannot load {folder}: {name} is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise LoadError(f"cannot load {folder}: {name} is not a JSON object")
    return values


def weight_file(folder: Path) -> str | None:
    """Return the file that holds, or lists, the weights of a model; None if there is none."""
    for name in _KNOWN:
        if (folder / name).is_file():
            return name
    return None


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read the tensors of a folder, from one file or from several with an index."""
    name = weight_file(folder)
    if name is None:
        raise LoadError(f"cannot load {folder}: it holds neither {WEIGHTS} nor pytorch_model.bin")
    if name not in _INDEXED:
        return read_tensors(folder / name)
    shards = read_json(folder, name).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(one, str) for one in shards.values()):
        raise LoadError(f"cannot load {folder}: {name} has no weight_map from tensors to files")
    files = {
        shard: read_tensors(_shard(folder, shard, name)) for shard in sorted({*shards.values()})
    }
    for tensor, shard in shards.items():
        if tensor not in files[shard]:
            raise LoadError(f"cannot load {folder}: {shard} lacks {tensor}, which {name} lists")
    return {tensor: files[shard][tensor] for tensor, shard in shards.items()}


def _shard(folder: Path, shard: str, index: str) -> Path:
    if Path(shard).name != shard:
        raise LoadError(
            f"cannot load {folder}: {index} names {shard!r}, which is not in the folder"
        )
    return folder / shard


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file of named tensors, by its suffix: safetensors, or a pickle of PyTorch's."""
    if not path.is_file():
        raise LoadError(f"cannot load {path}: no such file")
    if path.stat().st_size == 0:
        raise LoadError(f"cannot load {path}: the file is empty")
    with path.open("rb") as file:
        if file.read(40).startswith(b"version https://git-lfs.github.com"):
            raise LoadError(f"cannot load {path}: it is a Git LFS pointer; fetch the file itself")
    return _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise LoadError(
            f"cannot load {path}: damaged, or not a safetensors file ({_reason(error)})"
        ) from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    import torch

    try:
        found = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
        )
    except UnpicklingError as error:
        raise LoadError(
            f"cannot load {path}: damaged, or it holds more than tensors, which is not read"
        ) from error
    except Exception as error:  # PyTorch has many ways to say that a file is none of its own
        raise LoadError(f"cannot load {path}: damaged, or not a PyTorch file") from error
    if not isinstance(found, Mapping) or not found:
        raise LoadError(f"cannot load {path}: it holds no table of tensors")
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise LoadError(f"cannot load {path}: {name!r} is not a named tensor")
    return {name: tensor.detach() for name, tensor in found.items()}


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a folder to write to, which takes its name once all is written, and not before.

    Raises OptionError if the name is taken by anything but an empty folder, or cannot be written.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise OptionError(f"{folder} is not empty; name a new folder")
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{folder} is a file; name a new folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        building = folder.parent / f".{folder.name}.{uuid.uuid4().hex}"
        building.mkdir()
    except OSError as error:
        raise OptionError(f"cannot write {folder}: {error.strerror or error}") from error
    try:
        yield building
        os.replace(building, folder)
    except OSError as error:
        raise OptionError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def write_json(folder: Path, values: Mapping[str, Any]) -> None:
    """Write config.json."""
    text = json.dumps(values, indent=2, allow_nan=False)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Tensors) -> None:
    """Write a file of named tensors, by its suffix: safetensors, or a pickle of PyTorch's."""
    import torch
    from safetensors.torch import save_file

    kept = _apart(tensors)
    if path.suffix == ".safetensors":
        save_file(kept, path, metadata={"format": "pt"})
        let_others_read(path)
    else:
        torch.save(kept, path)


def let_others_read(path: Path) -> None:
    """Give a file the rights a new one has here; safetensors leaves it to its owner alone."""
    model = path.with_name(f".{path.name}.new")
    model.touch()
    shutil.copymode(model, path)
    model.unlink()


def _apart(tensors: Tensors) -> dict[str, Tensor]:
    """Give each tensor memory of its own, on the CPU: neither shared nor part of a larger one."""
    apart: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        moved = tensor.detach().cpu().contiguous()
        storage = moved.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != moved.nbytes:
            moved = moved.clone()
        seen.add(moved.untyped_storage().data_ptr())
        apart[name] = moved
    return apart
