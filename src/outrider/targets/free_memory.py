"""What the machine has left: of main memory, within what this process may use, and of a GPU's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIPS = Path("/proc/self/cgroup")


def available_memory(device: torch.device) -> int:
    """Return the bytes that can still be allocated on a device.

    On a CPU that is what the system or, if less, the process's control group has left; on a CUDA
    device, what the driver has left and what PyTorch holds without using it.
    """
    import torch

    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + unused)
    import psutil  # type: ignore[import-untyped]

    system = int(psutil.virtual_memory().available)
    try:
        memberships = _MEMBERSHIPS.read_text(encoding="utf-8")
    except OSError:  # not Linux
        return system
    limit = cgroup_available(_CGROUPS, memberships)
    return system if limit is None else min(system, limit)


def cgroup_available(root: Path, memberships: str) -> int | None:
    """Return what the control groups of a process leave it; None if none has a limit.

    `root` is where they are mounted, `memberships` the text of /proc/self/cgroup. A group's own
    limit and those of all groups above it hold. Pages of files count as free: the system drops
    them when memory is asked for.
    """
    left: list[int] = []
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            base, files = root, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "memory"
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = base / path.lstrip("/")
        # In a container the path may be the host's, and the group itself is mounted at the base.
        while group == base or base in group.parents:
            found = _left_of(group, *files)
            left += [] if found is None else [found]
            group = group.parent
    return min(left, default=None)


def _left_of(group: Path, limit_file: str, usage_file: str, reclaimable: str) -> int | None:
    try:
        limit = (group / limit_file).read_text(encoding="ascii").strip()
        usage = int((group / usage_file).read_text(encoding="ascii"))
        statistics = (group / "memory.stat").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    if not limit.isdigit():  # "max"
        return None
    files = [
        int(line.split()[1])
        for line in statistics.splitlines()
        if line.startswith(f"{reclaimable} ")
    ]
    return max(0, int(limit) - usage + sum(files))
