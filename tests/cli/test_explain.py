"""Why each round drafted what it did: counted by the engine, told by the command."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from fake_decoder import FakeDecoder
from typer.testing import CliRunner

import outrider
from outrider.cli.explain import explain
from outrider.cli.main import app
from outrider.engine.choices import Forecast
from outrider.engine.costs import PassCosts
from outrider.engine.stats import Stats

# A row adds a tenth of the first one; the context adds nothing.
COSTS = PassCosts.measured((rows, 0.0, 0.09 + 0.01 * rows, 1) for rows in (1, 2, 4, 8, 16, 32))


@dataclass
class FakeEngine:
    """As much of an engine as explaining looks at."""

    drafters: tuple[str, ...] = ("suffix",)
    max_draft: int | str = "auto"
    costs: PassCosts = field(default_factory=lambda: COSTS)


def stats_of(*rounds: tuple[str, int, int], **counters: Any) -> Stats:
    """Return the stats of rounds (drafter, drafted, emitted) of 0.2 s, 0.1 s for plain decoding."""
    stats = Stats(prompt_tokens=10, tokens=20, **counters)
    for drafter, drafted, emitted in rounds:
        forecast = Forecast(drafter, tokens=3.0, seconds=0.2, plain_s=0.1)
        stats.record_choice(forecast, drafted, emitted, seconds=0.2)
    return stats


def reason(engine: FakeEngine, stats: Stats) -> str:
    return explain(cast(Any, engine), stats).reason


def test_the_reason_is_what_more_rows_cost_and_how_many_were_right() -> None:
    stats = stats_of(("suffix", 3, 4), ("suffix", 1, 2), attempted_at=[8, 2], accepted_at=[5, 1])
    assert reason(FakeEngine(), stats) == (
        "The longest draft had 3 tokens: a pass of 8 rows costs 1.70x one of 1, and 60% of the "
        "drafted tokens that were tried were right."
    )
    one = stats_of(("suffix", 1, 2), attempted_at=[1], accepted_at=[1])
    assert reason(FakeEngine(), one).startswith("The longest draft had 1 token: a pass of 4 rows")


@pytest.mark.parametrize(
    ("engine", "counters", "told"),
    [
        (FakeEngine(), {}, "Nothing was drafted: no draft promised more than it costs; a pass of"),
        (FakeEngine(drafters=()), {}, "Plain decoding was asked for, so nothing was drafted."),
        (FakeEngine(max_draft=5), {}, "Up to 5 tokens were drafted every round, as was asked for."),
        (FakeEngine(), {"drafter_error": "ValueError: x"}, "A drafter was dropped: ValueError: x."),
    ],
)
def test_what_was_asked_for_or_went_wrong_is_reason_enough(
    engine: FakeEngine, counters: dict[str, Any], told: str
) -> None:
    assert reason(engine, stats_of(("plain", 0, 1), **counters)).startswith(told)


EXPLAINED = """\
┏━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ drafter ┃ drafted ┃ rounds ┃ tokens/round ┃ predicted gain ┃ realised gain ┃
┡━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ suffix  │       3 │      2 │         3.50 │          1.50x │         1.75x │
│ plain   │       0 │      1 │         1.00 │          1.50x │         0.50x │
└─────────┴─────────┴────────┴──────────────┴────────────────┴───────────────┘
"""


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> FakeDecoder:
    rounds = (("suffix", 3, 4), ("suffix", 3, 3), ("plain", 0, 1))
    counters: dict[str, Any] = {"proposed_at": [2], "attempted_at": [2], "accepted_at": [1]}
    counters["choices"] = stats_of(*rounds).choices
    decoder = FakeDecoder(engine=FakeEngine(), counters=counters)
    monkeypatch.setitem(outrider.__dict__, "load", lambda *_, **__: decoder)
    return decoder


def test_the_table_follows_the_summary_on_stderr(decoder: FakeDecoder) -> None:
    result = CliRunner().invoke(app, ["generate", "Hello", "--explain"])
    assert result.exit_code == 0, result.output
    _, _, table = result.stderr.partition("drafted tokens accepted\n")
    assert table.startswith(EXPLAINED)
    assert table.removeprefix(EXPLAINED).startswith("The longest draft had 3 tokens: ")
    assert table.removeprefix(EXPLAINED).count("\n") == 1
    assert "predicted" not in CliRunner().invoke(app, ["generate", "Hello"]).output


def test_json_holds_the_choices_and_the_reason(decoder: FakeDecoder) -> None:
    result = CliRunner().invoke(app, ["generate", "Hello", "--explain", "--json"])
    explained = json.loads(result.stdout)["explain"]
    assert set(explained) == {"choices", "reason"}
    shown = [(c["drafter"], c["drafted"], c["rounds"], c["gain"]) for c in explained["choices"]]
    assert shown == [("suffix", 3, 2, pytest.approx(1.75)), ("plain", 0, 1, pytest.approx(0.5))]
    assert "explain" not in json.loads(CliRunner().invoke(app, ["generate", "Hi", "--json"]).stdout)
