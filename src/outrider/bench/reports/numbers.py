"""Figures as people read them; what is unknown is an empty text, never a zero."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.bench.base import Spread

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def number(value: float | None, form: str = "{:.2f}") -> str:
    """Return a figure in a form, empty if it is unknown."""
    return "" if value is None else form.format(value)


def spread(value: Spread | None, form: str = "{:.2f}", unit: str = "") -> str:
    """Return the median with lowest and highest, as "1.57x (1.52-1.61)"; alone where all agree."""
    if value is None:
        return ""
    median, low, high = (form.format(one) for one in (value.median, value.low, value.high))
    return f"{median}{unit}" if low == median == high else f"{median}{unit} ({low}-{high})"


def speedup(value: Spread | float | None) -> str:
    """Return a speedup, as "1.57x (1.52-1.61)"."""
    return spread(value, unit="x") if isinstance(value, Spread) else number(value, "{:.2f}x")


def percent(value: float | None) -> str:
    """Return a share, as "62%"."""
    return number(value, "{:.0%}")


def percents(values: Sequence[float]) -> str:
    """Return shares that belong together, as "78 61 55%"."""
    return " ".join(f"{100 * one:.0f}" for one in values) + "%" if values else ""


def milliseconds(seconds: float | None) -> str:
    """Return a time in milliseconds, as "31.2 ms"."""
    return number(None if seconds is None else 1e3 * seconds, "{:.1f} ms")


def memory(count: int | None) -> str:
    """Return bytes in a unit that suits them, as "1.2 GiB"."""
    if count is None:
        return ""
    size, units = float(count), list(_UNITS)
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} {units[0]}" if size >= 100 or units[0] == "B" else f"{size:.1f} {units[0]}"
