"""The terminal shows a table for each setting, within 100 columns."""

from __future__ import annotations

import io
from dataclasses import replace

from reports_sample import bare_report, sample_report
from rich.console import Console

from outrider.bench.base import Case, Failure, Report
from outrider.bench.reports.outline import settings
from outrider.bench.reports.table import terminal_table


def shown(report: Report, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, markup=True)
    console.print(terminal_table(report))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_it_fits_100_columns_and_cuts_no_figure() -> None:
    text = shown(sample_report())
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "…" not in text
    assert "1.54x (1.50-1.58)" in text


def test_there_is_a_table_for_each_temperature_and_batch() -> None:
    lines = [line.strip() for line in shown(sample_report()).splitlines()]
    for setting in settings(sample_report()):
        assert lines.count(setting.title) == 1
    assert sum(line.startswith("┏") for line in lines) == 6


def test_reasons_differences_failures_and_notes_stand_below() -> None:
    text = shown(sample_report())
    for part in (
        "scoring 5 rows costs 1.3x one row on this machine",
        "chat-2: token 17 is 5, not 9",
        "openvino is not installed",
        "make peers, or pip install openvino-genai",
        "note: time ran out after repeat 5 of 8",
        "6 of 522 answers of outrider differ",
    ):
        assert part in text, part


def test_what_is_unknown_is_not_shown() -> None:
    text = shown(bare_report())
    assert "suffix" in text
    for word in ("None", "speedup", "tau", "0.00", "failed", "note", "limits"):
        assert word not in text, word


def test_names_are_shown_as_they_are_and_drive_no_terminal() -> None:
    case = Case("model:[bold]x[/bold]")
    row = replace(bare_report().rows[0], case=case)
    failure = Failure(case, "\x1b[31mred\x07")
    text = shown(replace(bare_report(), rows=(row,), failures=(failure,)))
    assert "model:[bold]x[/bold]" in text
    assert "\ufffd[31mred\ufffd" in text
    assert "\x1b" not in text
