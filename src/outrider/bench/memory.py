"""The most memory that was held while something ran."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: torch.device) -> None:
    """Begin to measure anew, where the system can: on a GPU, and on Linux for this process."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        _RESET.write_text("5")
    except OSError:  # another system, or not allowed: the peak is that of the process's life
        return


def read_peak(device: torch.device) -> int | None:
    """Return the most bytes held since, on a GPU or by this process; None if nobody knows."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text())
    except OSError:
        found = None
    return _peak_of_life() if found is None else 1024 * int(found[1])


def _peak_of_life() -> int | None:
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else 1024 * int(peak)
