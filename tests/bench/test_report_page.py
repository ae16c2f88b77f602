"""`report.html` is one file that needs nothing else, and shows what is in the report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from typing import Any

from plotly.offline import get_plotlyjs
from reports_sample import bare_report, sample_report

from outrider.bench.base import ALL, Case, Report
from outrider.bench.reports.outline import is_plain, settings
from outrider.bench.reports.page import to_html

_VOID = {"meta", "link", "br", "hr", "img"}


class Page(HTMLParser):
    """The elements of a page, with their attributes and the text right inside them."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.source = to_html(report).replace(get_plotlyjs(), "/* plotly.js */")
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.open: list[int] = []
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in _VOID:
            self.open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        at = self.open.pop()
        assert self.elements[at][0] == tag, f"{self.elements[at][0]} ends as {tag}"

    def handle_data(self, data: str) -> None:
        if self.open:
            self.elements[self.open[-1]][2].append(data)

    def texts(self, tag: str) -> list[str]:
        return ["".join(data).strip() for name, _, data in self.elements if name == tag]

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes, _ in self.elements if name == tag]

    def figures(self) -> list[dict[str, Any]]:
        return [
            json.loads("".join(data))
            for tag, attributes, data in self.elements
            if tag == "script" and attributes.get("type") == "application/json"
        ]


@cache
def sample_page() -> Page:
    return Page(sample_report())


def test_every_element_is_closed_in_its_turn() -> None:
    assert sample_page().open == []
    assert Page(bare_report()).open == []


def test_nothing_is_loaded_from_anywhere() -> None:
    page = sample_page()
    assert not re.findall(r"https?://|url\(|@import|\bfetch\(|XMLHttpRequest", page.source)
    for _, attributes, _ in page.elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "data:").startswith("data:")
    (policy,) = [
        attributes["content"] or ""
        for attributes in page.attributes("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_plotly_itself_is_in_the_file_once() -> None:
    assert to_html(sample_report()).count(get_plotlyjs()) == 1


def test_a_page_without_plots_carries_no_plotly() -> None:
    page = Page(bare_report())
    assert page.figures() == []
    assert "plotly.js" not in page.source
    assert page.attributes("script") == []


def test_texts_of_the_report_stay_texts() -> None:
    bad = "</script><img src=x onerror=alert(1)>&amp;"
    report = sample_report()
    rows = tuple(
        replace(
            row,
            case=replace(row.case, drafter=bad if row.case == Case("suffix") else row.case.drafter),
            task=bad if row.task == "chat" else row.task,
            why=bad,
            differences=(bad,),
        )
        for row in report.rows
        if row.case.engine == "outrider"
    )
    page = Page(replace(report, rows=rows, target=bad, command=bad, notes=(bad,), workload=bad))
    assert page.open == []
    assert page.attributes("img") == []
    assert page.texts("h1") == [f"Benchmark of {bad}"]
    assert page.texts("code") == [bad]
    assert bad in page.texts("th")
    assert bad in page.texts("dd")
    # plotly.js reads tags in texts, and undoes one level of escapes.
    assert "<img" not in json.dumps(page.figures())
    assert "&lt;img" in json.dumps(page.figures())


def test_each_row_stands_once_in_the_tables() -> None:
    report = sample_report()
    names = sample_page().texts("th")
    labels = {row.case.label for row in report.rows}
    for label in labels:
        rows = [row for row in report.rows if row.case.label == label]
        overall = [row for row in rows if row.task == ALL]
        parts = [row for row in overall if row.score_s is not None]
        tasks = {row.case for row in rows if row.speedup and not is_plain(row.case)}
        assert names.count(label) == len(overall) + len(parts) + len(tasks), label
    cells = sample_page().texts("td")
    by_task = [row for row in report.rows if row.task != ALL]
    assert sum(cells.count(label) for label in labels if label != "none") == sum(
        row.case.label != "none" for row in by_task
    )


def test_what_is_unknown_is_an_empty_cell() -> None:
    cells = sample_page().texts("td")
    assert "" in cells
    assert not {"None", "nan", "NaN", "null", "0.00x", "0/0"} & set(cells)
    assert Page(bare_report()).texts("td") == ["10.0"]


def test_tables_say_what_their_headers_are_for() -> None:
    page = sample_page()
    assert {attributes.get("scope") for attributes in page.attributes("th")} == {"col", "row"}
    assert all(page.texts("caption"))
    regions = [one for one in page.attributes("div") if one.get("class") == "scroll"]
    assert len(regions) == len(page.attributes("table"))
    assert all(one["tabindex"] == "0" and one["aria-label"] for one in regions)


def test_plots_are_told_in_words_and_settings_fold() -> None:
    page = sample_page()
    drawn = [one for one in page.attributes("div") if one.get("class") == "plot"]
    assert len(drawn) == len(page.figures()) == 6 * 3 + 4
    assert all(one["role"] == "img" and one["aria-label"] for one in drawn)
    folds = [one for one in page.attributes("details") if "class" not in one]
    assert ["open" in one for one in folds] == [True] + [False] * 5
    titles = page.texts("h2")
    assert titles[:6] == [setting.title for setting in settings(sample_report())]


def test_every_colour_a_plot_names_is_one_of_the_page_in_light_and_dark() -> None:
    page = sample_page()
    (style,) = page.texts("style")
    marks = [one.get("style") or "" for one in page.attributes("span")]
    named = json.dumps(page.figures()) + style + " ".join(marks)
    used = set(re.findall(r"var\((--[\w-]+)\)", named))
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for name in used:
        assert re.search(rf"{name}: #[0-9a-f]{{6}};", light), name
        assert re.search(rf"{name}: #[0-9a-f]{{6}};", dark), name
    assert any("--hue" in name for name in used)


def test_the_page_fits_a_phone() -> None:
    page = sample_page()
    (viewport,) = [
        one["content"] for one in page.attributes("meta") if one.get("name") == "viewport"
    ]
    assert viewport == "width=device-width, initial-scale=1"
    assert all("width" not in figure["layout"] for figure in page.figures())
