"""Memory given back: weights are what they were, and what is not needed lies there no more."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from outrider.targets.paging import page_out, trim


def resident(kind: str) -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"Rss{kind}:\s*(\d+)", status)
    assert found is not None
    return 1024 * int(found.group(1))


def test_tensors_keep_their_values_wherever_they_lie(tmp_path: Path) -> None:
    made = torch.arange(100_000, dtype=torch.float32)
    save_file({"mapped": made}, tmp_path / "weights")
    mapped = load_file(tmp_path / "weights")["mapped"]
    tiny = torch.ones(3)
    page_out([made, mapped, tiny, torch.empty(0)])
    assert mapped.equal(torch.arange(100_000, dtype=torch.float32))
    assert made.equal(mapped) and tiny.equal(torch.ones(3))


@pytest.mark.skipif(sys.platform != "linux", reason="advice for Linux")
def test_pages_of_a_mapped_file_leave_memory(tmp_path: Path) -> None:
    size = 64 * 2**20
    save_file({"mapped": torch.ones(size // 4)}, tmp_path / "weights")
    mapped = load_file(tmp_path / "weights")["mapped"]
    assert float(mapped.sum()) == size // 4  # read whole
    before = resident("File")
    page_out([mapped])
    freed = before - resident("File")
    if freed == 0:
        pytest.skip("this system does not take the advice")
    assert freed > size // 2


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="the C library keeps nothing that was freed",
)
def test_what_was_freed_leaves_memory() -> None:
    size, count = 100_000, 1000
    blocks = [bytearray(b"x") * size for _ in range(count)]
    kept = blocks[-1]  # keeps those below it from leaving as they are freed
    del blocks[:]
    before = resident("Anon")
    trim()
    assert before - resident("Anon") > size * count // 2
    assert kept == b"x" * size
