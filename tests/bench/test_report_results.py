"""What a benchmark found is read back as it was written, or refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reports_sample import bare_report, sample_report

from outrider.bench.base import Spread
from outrider.bench.reports.results import RESULTS, read_report, to_document, to_json
from outrider.errors import LoadError


@pytest.mark.parametrize("report", [sample_report(), bare_report()], ids=["full", "bare"])
def test_what_is_written_is_read_back(report: Any, tmp_path: Path) -> None:
    path = tmp_path / RESULTS
    path.write_text(to_json(report), encoding="utf-8")
    assert read_report(path) == report
    assert read_report(tmp_path) == report
    assert json.loads(to_json(report)) == json.loads(json.dumps(to_document(report)))


def test_what_is_unknown_is_null() -> None:
    row = json.loads(to_json(bare_report()))["report"]["rows"][0]
    assert row["speedup"] is None
    assert row["draft_s"] is None


def test_a_figure_that_is_no_number_is_not_written() -> None:
    report = bare_report()
    broken = replace(report.rows[0], speedup=Spread(float("nan"), 1.0, 1.0))
    with pytest.raises(ValueError, match="JSON"):
        to_json(replace(report, rows=(broken,)))


def set_format(document: dict[str, Any]) -> None:
    document["format"] = 99


def drop_row_task(document: dict[str, Any]) -> None:
    del document["report"]["rows"][0]["task"]


def add_field(document: dict[str, Any]) -> None:
    document["report"]["machine"]["colour"] = "red"


def spell_speed(document: dict[str, Any]) -> None:
    document["report"]["rows"][0]["tokens_per_second"]["low"] = "fast"


def halve_batch(document: dict[str, Any]) -> None:
    document["report"]["rows"][0]["case"]["batch"] = 1.5


def true_count(document: dict[str, Any]) -> None:
    document["report"]["prompts"] = True


def bend_rule(document: dict[str, Any]) -> None:
    document["report"]["rows"][0]["case"]["rule"] = "lenient"


def single_note(document: dict[str, Any]) -> None:
    document["report"]["notes"] = "time ran out"


def no_report(document: dict[str, Any]) -> None:
    del document["report"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (set_format, "its format is 99, not 1"),
        (drop_row_task, r"report\.rows\[0\] has no 'task'"),
        (add_field, r"report\.machine has an unknown field 'colour'"),
        (spell_speed, r"report\.rows\[0\]\.tokens_per_second\.low is 'fast', not a number"),
        (halve_batch, r"report\.rows\[0\]\.case\.batch is 1\.5, not a whole number"),
        (true_count, r"report\.prompts is True, not a whole number"),
        (bend_rule, r"rule is 'lenient', not one of match, rejection, block, traversal"),
        (single_note, r"report\.notes is 'time ran out', not a list"),
        (no_report, "it has no format and report"),
    ],
)
def test_what_does_not_fit_is_named(
    damage: Callable[[dict[str, Any]], None], reason: str, tmp_path: Path
) -> None:
    document = json.loads(to_json(sample_report()))
    damage(document)
    path = tmp_path / RESULTS
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(LoadError, match=f"{RESULTS} holds no results of a benchmark: .*{reason}"):
        read_report(path)


def test_a_file_that_is_missing_or_cut_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="No such file"):
        read_report(tmp_path)
    text = to_json(bare_report())
    (tmp_path / RESULTS).write_text(text[: len(text) // 2], encoding="utf-8")
    with pytest.raises(LoadError, match="holds no results"):
        read_report(tmp_path)


def test_whole_numbers_stand_for_seconds(tmp_path: Path) -> None:
    document = json.loads(to_json(bare_report()))
    document["report"]["rows"][0]["draft_s"] = 2
    (tmp_path / RESULTS).write_text(json.dumps(document), encoding="utf-8")
    seconds = read_report(tmp_path).rows[0].draft_s
    assert isinstance(seconds, float)
    assert seconds == 2.0
