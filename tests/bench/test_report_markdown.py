"""`report.md` shows every row, lets no text break out of its cell, and claims nothing unknown."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token
from reports_sample import bare_report, sample_report

from outrider.bench.base import ALL, Case, Failure, Report
from outrider.bench.reports.columns import FIGURES, PARTS, known
from outrider.bench.reports.grids import glossary
from outrider.bench.reports.markdown import to_markdown
from outrider.bench.reports.outline import settings


def parse(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def shown(token: Token) -> str:
    """Return what a reader sees of a line, without its markup."""
    return "".join(child.content for child in token.children or [])


def tables(text: str) -> list[list[list[str]]]:
    """Return the cells of every table, the header first."""
    found: list[list[list[str]]] = []
    for token in parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and found and token.level >= 4:
            found[-1][-1].append(shown(token))
    return found


def headings(text: str) -> list[str]:
    tokens = parse(text)
    return [shown(tokens[at + 1]) for at, one in enumerate(tokens) if one.type == "heading_open"]


@cache
def sample_tables() -> list[list[list[str]]]:
    return tables(to_markdown(sample_report()))


def named(report: Report, header: list[str]) -> list[list[list[str]]]:
    found = sample_tables() if report is sample_report() else tables(to_markdown(report))
    return [table for table in found if table[0][: len(header)] == header]


def test_each_row_stands_once_in_the_tables_of_its_setting() -> None:
    report = sample_report()
    expected = settings(report)
    overall = named(report, ["drafter", "tokens/s"])
    by_task = named(report, ["task", "drafter"])
    assert len(overall) == len(by_task) == len(expected) == 6
    for setting, whole, single in zip(expected, overall, by_task, strict=True):
        labels = Counter(row[0] for row in whole[1:])
        assert labels == Counter(row.case.label for row in setting.rows if row.task == ALL)
        pairs = Counter((row[0], row[1]) for row in single[1:])
        assert pairs == Counter((r.task, r.case.label) for r in setting.rows if r.task != ALL)


def test_a_row_shows_the_figures_of_its_case() -> None:
    (first, *_) = named(sample_report(), ["drafter", "tokens/s"])
    ngram = dict(zip(first[0], first[2], strict=True))
    row = next(r for r in sample_report().rows if r.case == Case("ngram") and r.task == ALL)
    assert ngram["drafter"] == "ngram"
    assert ngram["tokens/s"].startswith(f"{row.tokens_per_second.median:.1f} (")
    assert ngram["identical"] == "17/18"


def test_no_text_breaks_out_of_its_cell_or_its_line() -> None:
    report = sample_report()
    case = Case("model:a|b `c` <i>*d*</i>\n# e")
    rows = [replace(row, case=case) for row in report.rows if row.case == Case("suffix")]
    nasty = replace(
        report,
        rows=tuple(rows),
        failures=(Failure(case, "first\n# second", "use ~~this~~ or $that$"),),
        notes=("- [a](b) | c\n\n***", "# 5", "7. is", "1.5 is"),
        command="outrider bench --drafters '`\n```\n# f'",
    )
    text = to_markdown(nasty)
    label = "model:a|b `c` <i>*d*</i> # e"
    assert named(nasty, ["drafter", "tokens/s"])[0][1][0] == label
    assert {row[1] for row in named(nasty, ["task", "drafter"])[0][1:]} == {label}
    assert not [title for title in headings(text) if title in ("e", "second", "f")]
    (fence,) = [token for token in parse(text) if token.type == "fence"]
    assert fence.content.strip() == nasty.command.strip()
    inline = {shown(token) for token in parse(text) if token.type == "inline"}
    assert f"{label} (Greedy, batch 1): first # second" in inline
    assert "use ~~this~~ or $that$" in inline
    assert inline >= {"- [a](b) | c ***", "# 5", "7. is", "1.5 is"}


def test_what_is_unknown_is_an_empty_cell() -> None:
    report = sample_report()
    plain = next(table for table in named(report, ["drafter", "tokens/s"]))[1]
    assert plain[0] == "none"
    assert plain[2:] == ["1.00x", *[""] * len(plain[3:])]
    assert "None" not in to_markdown(report)
    assert "nan" not in to_markdown(report)


def test_a_column_of_which_nothing_is_known_is_left_out() -> None:
    text = to_markdown(bare_report())
    assert named(bare_report(), ["drafter", "tokens/s"]) == [
        [["drafter", "tokens/s"], ["suffix", "10.0"]]
    ]
    for header in ("tau", "speedup", "Failed", "Notes", "Cost of rows", "None", "0.00"):
        assert header not in text, header


def test_every_column_is_explained() -> None:
    report = sample_report()
    (terms,) = named(report, ["column", "meaning"])
    assert [row[0] for row in terms[1:]] == [name for name, _ in glossary(report)]
    headers = {cell for table in named(report, ["drafter"]) for cell in table[0]}
    headers -= {task for task in report.tasks}
    assert headers <= {row[0] for row in terms[1:]}
    assert {column.header for column in known(FIGURES, report.rows)} >= {
        column.header for column in PARTS
    }


def test_failures_come_with_advice_and_notes_are_kept() -> None:
    text = to_markdown(sample_report())
    assert "openvino is not installed\n  - make peers, or pip install openvino-genai" in text
    assert "- time ran out after repeat 5 of 8" in text
    assert "- **ngram**: chat-2: token 17 is 5, not 9" in text


def test_the_headings_are_in_order_and_the_page_is_named_once() -> None:
    levels = [
        int(t.tag[1]) for t in parse(to_markdown(sample_report())) if t.type == "heading_open"
    ]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
