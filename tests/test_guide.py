"""The guide says nothing that was not measured: its figures are those of the tables it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outrider.targets.inspection import inspect_pair

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
FIGURE = r"(?<![\w.])\d+\.\d+(?![\w.]*\.md)|(?<!\d)\d+(?=%)"
MIB = 2**20


def sources() -> list[Path]:
    """Return the pages that the guide says its figures are from."""
    (head,) = re.findall(r"^Every figure .*?\n\n", GUIDE, flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)#]+)", head)
    return [(ROOT / "docs" / link).resolve() for link in links]


def section(name: str) -> str:
    (found,) = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", GUIDE, flags=re.DOTALL | re.MULTILINE)
    return str(found)


def test_every_figure_of_the_guide_was_measured() -> None:
    measured = {
        figure for page in sources() for figure in re.findall(FIGURE, page.read_text("utf-8"))
    }
    claimed = re.findall(FIGURE, GUIDE.replace(section("Memory for both"), ""))
    assert len(claimed) > 50
    assert set(claimed) - measured == set()


def test_speedups_by_task_are_rows_of_the_report() -> None:
    report = sources()[0].read_text("utf-8")
    rows = re.findall(r"^\| (`[^|]+) \| (.*\dx) \|$", section("Which drafter for which work"), re.M)
    assert len(rows) == 6
    for name, figures in rows:
        case = re.sub(r"[`]", "", name).replace(", float32", "").replace(", int8", " int8")
        spread = r"(?: \([^)]*\))?"
        wanted = rf"{spread} \| ".join(map(re.escape, figures.split(" | ")))
        assert re.search(rf"^\| {re.escape(case.replace(',', '+'))} \| {wanted}", report, re.M), (
            name
        )


def test_costs_of_rows_are_those_of_the_report() -> None:
    report = sources()[0].read_text("utf-8")
    measured: dict[str, list[str]] = {}
    for rows, cells in re.findall(r"^\| (\d+) \|(.* ms.*)\|$", report, re.MULTILINE):
        measured.setdefault(rows, []).extend(cell.strip() for cell in cells.split("|"))
    table = re.findall(r"^\| (\d+) \| (.*) \|$", section("How many tokens"), re.MULTILINE)
    assert len(table) == 5
    for rows, cells in table:
        told = cells.split(" | ")
        assert len(told) == len(measured[rows])
        for ours, theirs in zip(told, measured[rows], strict=True):
            assert ours in (theirs, theirs.partition("(")[2].rstrip(")")), rows


@pytest.mark.embedded
def test_memory_is_what_info_says() -> None:
    table = re.findall(r"^\| (`.+`) \| ([\d.]+) MiB \|$", section("Memory for both"), re.MULTILINE)
    told = {spec: size for specs, size in table for spec in re.findall(r"`([^`]+)`", specs)}
    assert len(told) == 7
    for spec, size in told.items():
        total = inspect_pair("smollm2-135m", spec).total_bytes
        assert total is not None and f"{total / MIB:.1f}" == size, spec
    target = inspect_pair("smollm2-135m").target
    assert target.weight_bytes is not None and target.kv_bytes_per_token is not None
    assert f"{target.weight_bytes / MIB:.1f} MiB" in section("Memory for both")
    assert f"{target.kv_bytes_per_token / 1024:.1f} KiB" in section("Memory for both")
