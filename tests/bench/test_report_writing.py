"""A benchmark leaves three files, and says so if it cannot write one of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from reports_sample import bare_report, sample_report

from outrider.bench import reports
from outrider.bench.reports import page_lacks, read_report, write_reports
from outrider.errors import OptionError

NAMES = ["report.html", "report.md", "results.json"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def without_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> Any:
        return None if name == "plotly" else object()

    monkeypatch.setattr(reports, "find_spec", find)


def test_three_files_are_written_and_named(tmp_path: Path) -> None:
    written = write_reports(sample_report(), tmp_path / "new" / "folder")
    assert sorted(path.name for path in written) == NAMES
    assert names(tmp_path / "new" / "folder") == NAMES
    assert read_report(tmp_path / "new" / "folder") == sample_report()


def test_the_same_report_gives_the_same_files_again(tmp_path: Path) -> None:
    once = [path.read_bytes() for path in write_reports(sample_report(), tmp_path)]
    again = write_reports(read_report(tmp_path), tmp_path)
    assert [path.read_bytes() for path in again] == once


def test_without_plotly_all_but_the_page_is_written_and_the_log_says_what_to_install(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, without_plotly: None
) -> None:
    with caplog.at_level(logging.WARNING, "outrider"):
        written = write_reports(bare_report(), tmp_path)
    assert [path.name for path in written] == ["results.json", "report.md"]
    assert names(tmp_path) == ["report.md", "results.json"]
    (record,) = caplog.records
    assert record.getMessage() == page_lacks()
    assert "pip install 'outrider[bench]'" in record.getMessage()


def test_a_page_of_other_results_is_not_left_beside_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_reports(bare_report(), tmp_path)
    monkeypatch.setattr(reports, "find_spec", lambda name: None)
    write_reports(sample_report(), tmp_path)
    assert names(tmp_path) == ["report.md", "results.json"]


def test_with_plotly_nothing_is_lacking() -> None:
    assert page_lacks() is None


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(OptionError, match=r"cannot write .*taken"):
        write_reports(bare_report(), tmp_path / "taken")
