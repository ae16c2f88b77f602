"""The most memory held while something ran."""

from __future__ import annotations

import sys

import pytest
import torch

from outrider.bench.memory import read_peak, reset_peak

CPU = torch.device("cpu")
SIZE = 1 << 27


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is that of a whole life")
def test_the_peak_is_that_since_it_was_reset() -> None:
    reset_peak(CPU)
    before = read_peak(CPU)
    torch.ones(SIZE // 4)
    held = read_peak(CPU)
    reset_peak(CPU)
    after = read_peak(CPU)
    assert before is not None and held is not None and after is not None
    assert held - before > SIZE // 2
    assert held - after > SIZE // 2
