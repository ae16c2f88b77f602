"""Models larger than a device: their weights spread over GPUs, main memory and disk.

Accelerate decides what stands where and brings each layer's weights to where it computes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import uuid
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.errors import LoadError, OptionError
from outrider.targets.diskcache import cache_directory
from outrider.targets.free_memory import available_memory

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Spread:
    """Weights placed where there is room: GPUs first, then main memory, then files.

    `max_memory` limits the bytes of a device; None leaves that to what is free. `folder` is made
    when something is offloaded to disk, and is removed with the model if it `is_temporary`.
    """

    max_memory: Mapping[int | str, int | str] | None
    folder: Path
    is_temporary: bool

    def options(self) -> dict[str, Any]:
        """Return what Transformers' `from_pretrained` is given for this."""
        limits = _free_memory() if self.max_memory is None else dict(self.max_memory)
        return {"device_map": "auto", "max_memory": limits, "offload_folder": str(self.folder)}

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Keep Accelerate quiet while a model is loaded."""
        chatter = logging.getLogger("accelerate.big_modeling")
        level = chatter.level
        chatter.setLevel(logging.ERROR)  # it warns that weights were offloaded, as was asked for
        try:
            yield
        finally:
            chatter.setLevel(level)

    def outlive(self, model: PreTrainedModel) -> None:
        """Remove a temporary folder once the model is gone, at the latest when Python ends."""
        if self.is_temporary:
            weakref.finalize(model, shutil.rmtree, self.folder, ignore_errors=True)


def parse_spread(
    device: str | torch.device | None,
    max_memory: Mapping[str | int, str | int] | None,
    offload_folder: str | None,
) -> Spread | None:
    """Return the spread that device "auto" asks for, None for any other device.

    `max_memory` gives bytes or text like "10GiB" by GPU number or "cpu". Raises OptionError for
    limits that mean nothing, and for limits or a folder without "auto"; LoadError for a folder
    that cannot be made.
    """
    if device != "auto":
        for name, value in (("max_memory", max_memory), ("offload_folder", offload_folder)):
            if value is not None:
                raise OptionError(f"{name} is {value!r}, which needs device='auto'")
        return None
    limits = None if max_memory is None else _checked(max_memory)
    if offload_folder is None:
        return Spread(limits, _temporary_folder(), is_temporary=True)
    folder = Path(offload_folder).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LoadError(
            f"cannot offload to {folder}: {error.strerror or error}; give another offload_folder"
        ) from error
    return Spread(limits, folder, is_temporary=False)


def execution_device(model: PreTrainedModel) -> torch.device:
    """Return the device that computes a model's first layer and takes its token ids.

    For weights that are offloaded it is where they are brought to, for a model on several devices
    the first of them.
    """
    import torch

    embeddings: torch.nn.Module = model.get_input_embeddings()
    for module in (model, embeddings):
        for hook in _hooks(module):
            device = getattr(hook, "execution_device", None)
            if device is not None:
                return torch.device(device)
    return next(embeddings.parameters()).device


def is_spread(model: PreTrainedModel) -> bool:
    """Whether a model's weights are brought from elsewhere, or stand on several devices."""
    return any(_hooks(module) for module in model.modules())


def _hooks(module: torch.nn.Module) -> tuple[object, ...]:
    hook = getattr(module, "_hf_hook", None)
    return () if hook is None else tuple(getattr(hook, "hooks", (hook,)))


def _checked(max_memory: Mapping[str | int, str | int]) -> dict[int | str, int | str]:
    """Return the limits in bytes; raises OptionError for a device or size that is none."""
    import torch
    from accelerate.utils import (  # type: ignore[import-untyped]
        convert_file_size_to_int,
    )

    gpus = torch.cuda.device_count()
    known = [*range(gpus), "cpu"]
    limits: dict[int | str, int | str] = {}
    for device, limit in max_memory.items():
        if device not in known:
            raise OptionError(
                f"max_memory names {device!r}; it must be 'cpu' or the number of one of {gpus} GPUs"
            )
        try:
            size = convert_file_size_to_int(limit) if isinstance(limit, str) else limit
        except ValueError:
            size = None
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise OptionError(
                f"max_memory of {device!r} is {limit!r}; it must be bytes, or text like '10GiB'"
            )
        limits[device] = size
    return limits


def _free_memory() -> dict[int | str, int | str]:
    """Return what Accelerate finds free on each device, within what this process may use."""
    import torch
    from accelerate.utils import get_max_memory

    limits: dict[int | str, int | str] = get_max_memory()
    if "cpu" in limits:
        limits["cpu"] = min(int(limits["cpu"]), available_memory(torch.device("cpu")))
    return limits


def _temporary_folder() -> Path:
    """Name a folder in our cache, after removing those that killed processes have left."""
    import psutil  # type: ignore[import-untyped]

    ours = f".offload-{socket.gethostname()}-"
    root = cache_directory()
    for left in root.glob(f"{ours}*-*"):
        process = left.name.removeprefix(ours).partition("-")[0]
        if process.isdigit() and not psutil.pid_exists(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    return root / f"{ours}{os.getpid()}-{uuid.uuid4().hex[:12]}"
