"""Progress where there is no terminal, and the time left in words."""

from __future__ import annotations

import pytest

from outrider.bench.pace import Step
from outrider.cli.bar import progress_bar, time_left


def test_without_a_terminal_there_is_a_line_for_each_stage_and_each_tenth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress_bar() as show:
        show(Step("loading a model"))
        for turn in (1, 2):
            show(Step(f"measuring passes, round {turn} of 8"))
        show(Step("starting none", 0, 30))
        for done in range(8):
            show(Step("none: chat-1", done, 30, 300.0 - done if done else None))
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.splitlines() == [
        "loading a model",
        "measuring passes",
        "starting none",
        "0 of 30 turns",
        "3 of 30 turns, 5 min left",
        "6 of 30 turns, 5 min left",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0.4, "0 s left"),
        (59, "59 s left"),
        (90, "2 min left"),
        (7500, "2 h 5 min left"),
    ],
)
def test_the_time_left_is_told_as_people_do(seconds: float | None, words: str) -> None:
    assert time_left(seconds) == words
