"""The load recipe: figures are told apart by mode, compared, and never of too few tokens."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from serving import MODEL, load_tiny, serving

from outrider.workload.files import default_workload

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("serve_load")
    for name in set(sys.modules) - before:
        if name.startswith("serve_"):
            del sys.modules[name]


def answer(recipe: Any, *, text: str = "a", tokens: int = 50, later_s: float = 4.9) -> Any:
    return recipe.Answer(text, tokens, tokens // 2, 0.5, later_s)


def pair(recipe: Any, *, clients: int = 2, on: Any = None, seconds: float = 5.0) -> list[Any]:
    plain = [answer(recipe)] * 10
    return [
        recipe.Cell(clients, "off", tuple(plain), 2 * seconds),
        recipe.Cell(clients, "on", tuple(on or plain), seconds),
    ]


def test_both_modes_of_a_server_answer_all_prompts_alike(recipe: Any) -> None:
    prompts = [prompt for prompt in default_workload() if len(str(prompt.prompt)) < 150][:4]
    options = recipe.parser().parse_args(["--target", MODEL, "--tokens", "8"])

    async def cells(url: str) -> list[Any]:
        async with httpx2.AsyncClient(base_url=url) as http:
            load = recipe.Load(http, options)
            return [await load.cell(prompts, 3, mode) for mode in ("off", "on")]

    with serving(lambda: load_tiny(max_draft=4)) as running:
        plain, drafted = asyncio.run(cells(running.url))
    assert [a.text for a in plain.answers] == [a.text for a in drafted.answers]
    assert plain.tokens == drafted.tokens == 8 * len(prompts)
    assert sum(a.rounds for a in drafted.answers) < sum(a.rounds for a in plain.answers)


def test_figures_are_those_of_each_mode_and_ratios_those_of_one_server(recipe: Any) -> None:
    found = recipe.report(pair(recipe) + pair(recipe, seconds=2.5))
    off, on = sorted(found["cells"], key=lambda cell: cell["speculation"])
    assert off["throughput"] == pytest.approx(75) and on["throughput"] == pytest.approx(150)
    assert on["tokens"] == 1000 and on["acceptance_length"] == 2
    assert on["per_token_ms"] == {"p50": pytest.approx(100), "p99": pytest.approx(100), "of": 20}
    assert found["ratios"]["2"]["runs"] == [2, 2]
    assert found["different"] == 0 and found["texts"] == 20


def test_a_text_that_differs_is_counted(recipe: Any) -> None:
    on = [answer(recipe)] * 9 + [answer(recipe, text="b")]
    assert recipe.report(pair(recipe, on=on))["different"] == 1


def test_no_figure_is_given_for_too_few_tokens(recipe: Any) -> None:
    short = [answer(recipe, tokens=recipe.LEAST_TOKENS // 10 - 1)] * 10
    found = recipe.report(pair(recipe) + pair(recipe, on=short))
    refused = [cell["speculation"] for cell in found["cells"] if "refused" in cell]
    assert refused == ["on"] and found["ratios"]["2"] is None
    recipe.print_report(found)
    assert answer(recipe, tokens=recipe.LEAST_ANSWER - 1).per_token_s is None
