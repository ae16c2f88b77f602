"""The load recipe: figures are told apart by mode, compared, and never of too few tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from serving import MODEL, load_tiny, serving

from outrider.workload.files import default_workload
from support.recipes import recipe_module


@pytest.fixture
def recipe() -> Iterator[Any]:
    with recipe_module("serve_load") as module:
        yield module


def answer(recipe: Any, place: int = 0, *, text: str = "a", tokens: int = 50) -> Any:
    return recipe.Answer(f"prompt {place}", text, tokens, tokens // 2, 0.5, 4.9)


def pair(recipe: Any, *, clients: int = 2, on: Any = None, seconds: float = 5.0) -> list[Any]:
    plain = [answer(recipe, place) for place in range(10)]
    return [
        recipe.Cell(clients, "off", tuple(plain), 2 * seconds),
        recipe.Cell(clients, "on", tuple(on or plain), seconds),
    ]


def test_servers_with_drafters_and_without_answer_all_prompts_alike_at_any_load(
    recipe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [prompt for prompt in default_workload() if len(str(prompt.prompt)) < 150][:4]
    sizes = ["--requests", "4", "--each", "2", "--repeats", "2", "--clients", "1", "3"]
    options = recipe.parser().parse_args(["--target", MODEL, "--tokens", "8", *sizes])

    @contextmanager
    def spawned(arguments: list[str]) -> Iterator[str]:
        drafter = arguments[arguments.index("--drafter") + 1]
        options = {"max_draft": 4} if drafter != "none" else {"drafter": "none"}
        with serving(lambda: load_tiny(**options)) as running:
            yield running.url

    monkeypatch.setattr(recipe, "spawned_server", spawned)
    cells = recipe.measure(options, prompts)
    sent = [(cell.clients, cell.mode, len(cell.answers)) for cell in cells]
    turn = [(1, "on", 4), (1, "off", 4), (3, "on", 6), (3, "off", 6)]
    assert sent == [*turn, turn[1], turn[0], turn[3], turn[2]]
    found = recipe.report(cells)
    assert found["different"] == 0 and found["texts"] == 40 - len(prompts)
    assert all(cell.tokens == 8 * len(cell.answers) for cell in cells)
    rounds = {
        mode: sum(a.rounds for c in cells if c.mode == mode for a in c.answers)
        for mode in ("on", "off")
    }
    assert rounds["on"] < rounds["off"]


def test_nothing_is_begun_when_the_time_is_up(recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = recipe.parser().parse_args(["--seconds", "-1", "--warm-up", "0"])
    monkeypatch.setattr(recipe, "spawned_server", lambda arguments: nullcontext("http://x"))
    assert recipe.measure(options, default_workload()) == []


def test_figures_are_those_of_each_mode_and_ratios_those_of_neighbours(recipe: Any) -> None:
    found = recipe.report(pair(recipe) + pair(recipe, seconds=2.5))
    off, on = sorted(found["cells"], key=lambda cell: cell["speculation"])
    assert off["throughput"] == pytest.approx(75) and on["throughput"] == pytest.approx(150)
    assert on["tokens"] == 1000 and on["acceptance_length"] == 2
    assert on["per_token_ms"] == {"p50": pytest.approx(100), "p99": pytest.approx(100), "of": 20}
    assert found["ratios"]["2"]["runs"] == [2, 2] and found["lowest_ratio"] == 2
    assert found["different"] == 0 and found["texts"] == 30


def test_a_text_that_differs_is_counted(recipe: Any) -> None:
    on = [answer(recipe, place) for place in range(9)] + [answer(recipe, 9, text="b")]
    assert recipe.report(pair(recipe, on=on))["different"] == 1
    # At another load, too, a prompt has the same answer.
    other = pair(recipe, clients=4, on=on)
    assert recipe.report(pair(recipe) + other)["different"] == 1


def test_no_figure_is_given_for_too_few_tokens(recipe: Any) -> None:
    tokens = recipe.LEAST_TOKENS // 10 - 1
    short = [answer(recipe, place, tokens=tokens) for place in range(10)]
    found = recipe.report(pair(recipe) + pair(recipe, on=short))
    refused = [cell["speculation"] for cell in found["cells"] if "refused" in cell]
    assert refused == ["on"] and found["ratios"]["2"] is None
    recipe.print_report(found)
    assert answer(recipe, tokens=recipe.LEAST_ANSWER - 1).per_token_s is None
