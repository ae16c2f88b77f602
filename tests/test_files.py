"""A reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outrider.files import write_at_once


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    assert write_at_once(path, "one") == path
    write_at_once(path, "zwölf")
    assert path.read_text(encoding="utf-8") == "zwölf"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_finished_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_at_once(tmp_path / "report.md", "old")

    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left on device"):
        write_at_once(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_at_once(tmp_path / "missing" / "report.md", "text")
