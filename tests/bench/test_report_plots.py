"""Plots show the figures of the report, and none where there are none."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from reports_sample import BATCHES, bare_report, sample_report

from outrider.bench.base import ALL, Case, CostPoint, Report
from outrider.bench.reports.outline import is_plain, labels, settings
from outrider.bench.reports.palette import Style, styles
from outrider.bench.reports.plots import Looks, Plot, report_plots, setting_plots


def looks_of(report: Report) -> Looks:
    plain = {row.case.label for row in report.rows if is_plain(row.case)}
    return styles(labels(report.rows), plain)


def first_setting(report: Report) -> dict[str, Plot]:
    plots = setting_plots(settings(report)[0], looks_of(report))
    return {plot.title: plot for plot in plots}


def overall(report: Report) -> dict[str, Plot]:
    return {plot.title: plot for plot in report_plots(report, looks_of(report))}


def traces(plot: Plot) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plot.figure["data"]
    return found


def test_the_speedup_of_each_case_and_task_is_drawn_with_its_spread() -> None:
    report = sample_report()
    plot = first_setting(report)["Speedup by task"]
    names = [name for name, _ in plot.legend]
    trace = traces(plot)[names.index("suffix")]
    rows = [row for row in report.rows if row.case == Case("suffix")]
    assert list(trace["y"]) == ["whole workload", *report.tasks]
    for at, row in enumerate(rows):
        assert row.speedup is not None
        assert trace["x"][at] == row.speedup.median
        assert trace["error_x"]["array"][at] == row.speedup.high - row.speedup.median
        assert trace["error_x"]["arrayminus"][at] == row.speedup.median - row.speedup.low
    assert "none" not in names


def test_acceptance_is_drawn_at_every_depth() -> None:
    plot = first_setting(sample_report())["Acceptance by depth"]
    assert [list(trace["x"]) for trace in traces(plot)] == [[1, 2, 3, 4, 5, 6]] * 5


def test_the_parts_of_a_bar_add_up_to_the_time_of_a_token() -> None:
    setting = settings(sample_report())[0]
    plot = first_setting(sample_report())["Where the time goes"]
    lengths = dict.fromkeys(range(len(setting.overall)), 0.0)
    for trace in traces(plot):
        for at, length in zip(trace["y"], trace["x"], strict=True):
            lengths[at] += length
    for at, row in enumerate(setting.overall):
        assert lengths[at] == pytest.approx(1000 / row.tokens_per_second.median)
    assert plot.legend[-1][0] == "parts unknown"


def test_predictions_stand_against_measurements() -> None:
    report = sample_report()
    plot = overall(report)["Measured and predicted speedup"]
    drawn = {
        (x, y)
        for trace in traces(plot)
        if trace.get("mode") == "markers"
        for x, y in zip(trace["x"], trace["y"], strict=True)
    }
    rows = [row for row in report.rows if row.predicted is not None and row.speedup is not None]
    assert drawn == {(row.predicted, row.speedup.median) for row in rows if row.speedup}


def test_throughput_is_drawn_where_there_are_batches_to_compare() -> None:
    report = sample_report()
    titles = [title for title in overall(report) if title.startswith("Throughput")]
    assert titles == [
        "Throughput against batch, greedy",
        "Throughput against batch, temperature 1",
    ]
    one_batch = replace(report, rows=tuple(row for row in report.rows if row.case.batch == 1))
    assert not [title for title in overall(one_batch) if title.startswith("Throughput")]
    plot = overall(report)[titles[0]]
    suffix = traces(plot)[[name for name, _ in plot.legend].index("suffix")]
    assert tuple(suffix["x"]) == BATCHES
    rates = {
        row.case.batch: row.tokens_per_second.median
        for row in report.rows
        if row.task == ALL and (row.case.drafter, row.case.temperature) == ("suffix", 0.0)
    }
    assert list(suffix["y"]) == [rates[batch] for batch in BATCHES]


def test_costs_are_over_one_row_of_the_same_batch_and_context() -> None:
    points = (
        CostPoint("float32", 1, 64, 1, 0.02),
        CostPoint("float32", 1, 64, 4, 0.03),
        CostPoint("float32", 2, 64, 4, 0.09),  # without a single row: no ratio
        CostPoint("float32", 2, 64, 8, 0.12),
    )
    plot = overall(replace(bare_report(), costs=points))["Cost of rows"]
    (trace,) = traces(plot)
    assert list(trace["x"]) == [1, 4]
    assert list(trace["y"]) == pytest.approx([1.0, 1.5])
    assert [name for name, _ in plot.legend] == ["float32, batch 1, context 64"]


def test_there_is_no_plot_of_what_is_unknown() -> None:
    assert first_setting(bare_report()) == {}
    assert overall(bare_report()) == {}


def test_a_part_that_is_unknown_is_not_drawn_as_nothing() -> None:
    row = replace(bare_report().rows[0], score_s=3.0, host_s=1.0)
    plot = first_setting(replace(bare_report(), rows=(row,)))["Where the time goes"]
    assert [name for name, _ in plot.legend] == ["score", "host"]
    assert [list(trace["x"]) for trace in traces(plot)] == [[75.0], [25.0]]


def test_no_two_cases_look_alike_and_neighbours_differ_by_more_than_colour() -> None:
    names = [f"case {at}" for at in range(40)]
    found = list(styles(names).values())
    assert len({(style.colour, style.symbol) for style in found}) == 40
    for one, two in pairwise(found):
        assert one.symbol != two.symbol
        assert one.dash != two.dash


def test_a_case_looks_the_same_in_every_plot() -> None:
    seen: dict[str, Style] = {}
    for plot in (*first_setting(sample_report()).values(), *overall(sample_report()).values()):
        if plot.title not in ("Where the time goes", "Cost of rows"):
            for name, style in plot.legend:
                assert seen.setdefault(name, style) == style
    assert len(seen) == 14 + 1  # the rule "block" is only at temperature 1


def test_plain_decoding_is_not_coloured() -> None:
    looks = looks_of(sample_report())
    assert looks["none"].colour == "var(--faint)"
    assert looks["vllm none"].colour != "var(--faint)"
