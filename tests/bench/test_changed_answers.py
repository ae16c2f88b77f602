"""Cases that change the answer are labelled, told apart, and part of no claim."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from reports_sample import CHANGES, changed_report, sample_report
from rich.console import Console

from outrider.bench.base import Case
from outrider.bench.reports.grids import (
    changed_grid,
    cost_grids,
    figures_grid,
    glossary,
    parts_grid,
    reasons,
    speed_grid,
    tasks_grid,
    winners_grid,
)
from outrider.bench.reports.markdown import to_markdown
from outrider.bench.reports.outline import settings
from outrider.bench.reports.results import read_report, to_json
from outrider.bench.reports.summary import equality, findings
from outrider.bench.reports.table import terminal_table

SENTENCE = "These change the answer: what they write is not what the target says."
LABELS = ["suffix (lossy typical:0.09,0.3)", "int8: none", "int8: suffix", "cut:20: none"]


def shown() -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    console.print(terminal_table(changed_report()))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_label_names_the_lossy_rule_or_the_model() -> None:
    assert [case.label for case in CHANGES] == LABELS
    assert all(case.changes_answer for case in CHANGES)
    assert not Case("suffix", rule="block").changes_answer
    assert Case("none", weights="bfloat16", model="cut:2").label == "cut:2: none bfloat16"


def test_nothing_that_is_claimed_knows_of_them() -> None:
    """All of them are faster than anything else in the sample."""
    before, after = sample_report(), changed_report()
    assert equality(after) == equality(before)
    assert winners_grid(after) == winners_grid(before)
    for one, other in zip(settings(before), settings(after), strict=True):
        assert findings(other) == findings(one)
        assert tasks_grid(other) == tasks_grid(one)
        for grid in (speed_grid(other), parts_grid(other), figures_grid(other)):
            assert not any(label in row for row in grid.rows for label in LABELS)
        assert reasons(other.rows) == reasons(one.rows)


def test_they_stand_in_a_table_of_their_own_below_the_targets_plain_decoding() -> None:
    grid = changed_grid(settings(changed_report())[0])
    assert [row[0] for row in grid.rows] == ["none", *LABELS]
    plain, lossy, _, speculative, _ = (
        dict(zip(grid.headers, row, strict=True)) for row in grid.rows
    )
    assert (plain["log-likelihood"], plain["weights"]) == ("-0.250", "513 MiB")
    assert (lossy["over plain"], lossy["differ"]) == ("12.50x (12.40-12.60)", "37%")
    assert (lossy["log-likelihood"], lossy["KL"], lossy["own plain"]) == ("-0.875", "", "")
    assert (speculative["KL"], speculative["same choice"]) == ("0.062", "91%")
    assert (speculative["own plain"], speculative["weights"]) == ("18/18", "154 MiB")
    assert not changed_grid(settings(changed_report())[1])
    assert not changed_grid(settings(sample_report())[0])


@pytest.mark.parametrize("kind", ["terminal", "markdown", "html"])
def test_every_report_says_in_one_line_what_they_are(kind: str) -> None:
    if kind == "html":
        pytest.importorskip("plotly")
        from outrider.bench.reports.page import to_html

        text = to_html(changed_report())
        assert SENTENCE in text
        assert text.count("int8: suffix") == 1
    else:
        text = shown() if kind == "terminal" else to_markdown(changed_report())
        assert SENTENCE in " ".join(text.split())
        assert "int8: suffix" in text
    assert SENTENCE not in to_markdown(sample_report())


def test_the_table_fits_a_terminal() -> None:
    assert max(map(len, shown().splitlines())) <= 100


def test_columns_are_explained_where_they_are_shown() -> None:
    assert {"KL", "over plain", "own plain"} <= dict(glossary(changed_report())).keys()
    assert "KL" not in dict(glossary(sample_report()))


def test_results_are_read_back_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(to_json(changed_report()), encoding="utf-8")
    assert read_report(tmp_path) == changed_report()
    rows = json.loads(to_json(changed_report()))["report"]["rows"]
    labelled = [row for row in rows if row["case"]["lossy"]]
    assert labelled and {row["case"]["lossy"] for row in labelled} == {"typical:0.09,0.3"}
    assert {row["plain_log_likelihood"] for row in labelled} == {-0.25}


def test_the_cost_of_passes_is_told_by_model() -> None:
    assert [grid.caption for grid in cost_grids(changed_report())] == ["Time of a pass, float32"]
