"""Memory that is not needed any more, and given back: what was freed, or is in a mapped file."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable

from torch import Tensor

_PAGEOUT = 21  # MADV_PAGEOUT, Linux 5.4: what is read again comes back from the file


def page_out(tensors: Iterable[Tensor]) -> None:
    """Ask the system to take back the memory of tensors; their values stay what they are.

    That is advice, which does nothing where a system does not know it.
    """
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for tensor in tensors:
        first = -(-tensor.data_ptr() // mmap.PAGESIZE)
        last = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE
        if last > first:
            advise(first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE, _PAGEOUT)


def trim() -> None:
    """Give back what was freed, where the C library keeps such memory for later (glibc's does)."""
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if give_back is not None:
        give_back(0)
