"""What a measurement depends on besides the model: processor, threads, device and versions."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as far as the speed of a model depends on it, and the libraries that drive it."""

    processor: str
    cores: int
    """Cores that this process may run on."""
    threads: int
    """Threads PyTorch computes with."""
    accelerator: str | None
    """Name of the GPU the model is on, None on a CPU."""
    versions: dict[str, str]

    def difference(self, other: Machine) -> str | None:
        """Say in words where two machines first differ, None if they are alike."""
        ours, theirs = asdict(self), asdict(other)
        for name in ("processor", "cores", "threads", "accelerator"):
            if ours[name] != theirs[name]:
                return f"{name} {theirs[name]} instead of {ours[name]}"
        for name in sorted({*self.versions, *other.versions}):
            one, two = self.versions.get(name), other.versions.get(name)
            if one != two:
                return f"{name} {two} instead of {one}"
        return None


def this_machine(device: torch.device) -> Machine:
    """Describe this machine for a model on `device`."""
    import torch

    from outrider import __version__

    is_gpu = device.type == "cuda"
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _all_cores(),
        threads=torch.get_num_threads(),
        accelerator=torch.cuda.get_device_name(device) if is_gpu else _other(device),
        versions={
            "torch": str(torch.__version__),
            "transformers": version("transformers"),
            "outrider": __version__,
        },
    )


def _other(device: torch.device) -> str | None:
    return None if device.type == "cpu" else device.type


def _all_cores() -> int:
    return os.cpu_count() or 1


def _processor() -> str:
    """Return the processor's own name: `platform` knows only its family on Linux."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except (OSError, UnicodeDecodeError):
        pass
    return platform.processor() or platform.machine()
