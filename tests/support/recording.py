"""A stand-in for CUDA graphs: operations recorded on a CPU, and done again on the same tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

# What makes the host wait for the device, or puts values of the host into a recording.
_FORBIDDEN = {"_local_scalar_dense", "nonzero", "lift_fresh", "lift_fresh_copy"}


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replays operations on the very tensors they were recorded with, as a CUDA graph does.

    Nothing of the Python around the operations is repeated; the result of a replay is always the
    same tensor, and the results in between are overwritten.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in _FORBIDDEN:
            raise RuntimeError(f"{name} cannot be recorded")
        found = func(*args, **(kwargs or {}))
        self.steps.append((func, args, kwargs or {}, found))
        return found

    def replay(self) -> None:
        """Do all operations again, each result written where it was."""
        for func, args, kwargs, found in self.steps:
            again = func(*args, **kwargs)
            tree_map(_overwrite, found, again)


def _overwrite(old: Any, new: Any) -> None:
    # Views and results of in-place operations are where they were already.
    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
        old.copy_(new)


class Recorder:
    """Makes recordings on a CPU, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, run: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor]]:
        self.count += 1
        recording = Recording()
        with recording:
            outputs = run()

        def replay() -> list[Tensor]:
            recording.replay()
            return outputs

        return replay
