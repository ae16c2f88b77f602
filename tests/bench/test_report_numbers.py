"""Figures are shown in their units, with their spread, and not at all where they are unknown."""

from __future__ import annotations

from outrider.bench.base import Spread
from outrider.bench.reports.numbers import (
    memory,
    milliseconds,
    number,
    percent,
    percents,
    speedup,
    spread,
)


def test_what_is_unknown_is_an_empty_text() -> None:
    shown = [number(None), spread(None), speedup(None), percent(None), milliseconds(None)]
    assert {*shown, memory(None), percents(())} == {""}


def test_nothing_and_unknown_are_told_apart() -> None:
    assert percent(0.0) == "0%"
    assert milliseconds(0.0) == "0.0 ms"
    assert memory(0) == "0 B"


def test_a_spread_has_its_ends_where_they_differ_as_shown() -> None:
    assert speedup(Spread(1.571, 1.52, 1.61)) == "1.57x (1.52-1.61)"
    assert speedup(Spread(1.571, 1.5702, 1.5749)) == "1.57x"
    assert spread(Spread(31.24, 30.0, 32.0), "{:.1f}") == "31.2 (30.0-32.0)"
    assert speedup(2.5) == "2.50x"


def test_shares_are_percentages() -> None:
    assert percent(0.625) == "62%"
    assert percents((0.784, 0.61)) == "78 61%"


def test_bytes_have_a_unit_that_suits_them() -> None:
    assert memory(999) == "999 B"
    assert memory(1024) == "1.0 KiB"
    assert memory(300 * 2**20) == "300 MiB"
    assert memory(3 * 2**29) == "1.5 GiB"
    assert memory(5000 * 2**40) == "5000 TiB"
