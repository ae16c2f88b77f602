"""`outrider train`: what it asks of the library, and what it shows of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import outrider
from outrider.cli.main import app
from outrider.training import course

Command = Callable[..., Result]


@pytest.fixture
def asked() -> list[Any]:
    return []


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, asked: list[Any]) -> Command:
    """Return the command, over a library that notes what it is asked for."""

    def load(target: str, **options: Any) -> str:
        asked.append({"target": target, **options})
        return "decoder"

    def train(decoder: str, *given: Any, **options: Any) -> Any:
        asked.append((*given, options))
        return SimpleNamespace(spec="eagle:out/head", folder=Path("out"), evaluation=None)

    monkeypatch.setitem(outrider.__dict__, "load", load)
    monkeypatch.setattr(course, "train", train)
    return lambda *arguments: CliRunner().invoke(app, ["train", *arguments])


def test_every_option_reaches_the_library(run: Command, asked: list[Any]) -> None:
    result = run(
        *("medusa", "--out=run", "--target=t", "--data=a.jsonl,tasks", "--heads=3", "--lr=0.001"),
        *("--epochs=2", "--max-hours=1.5", "--bf16", "--seed=7", "--resume", "--max-batch=8"),
        *("--dtype=float32", "--from=old"),
    )
    assert result.exit_code == 0, result.output
    loaded, (recipe, options, out, more) = asked
    assert (loaded["target"], loaded["max_batch"], loaded["dtype"]) == ("t", 8, "float32")
    assert (recipe.kind, recipe.data, recipe.heads) == ("medusa", ("a.jsonl", "tasks"), 3)
    assert (recipe.start, recipe.tokens) == ("old", None)
    assert (options.learning_rate, options.epochs, options.max_hours) == (0.001, 2, 1.5)
    assert (options.autocast, options.seed) == (True, 7)
    assert (out, more["resume"]) == (Path("run"), True)


def test_what_was_trained_is_told(run: Command) -> None:
    told = run("eagle", "--out=run").stdout
    assert "trained: --drafter eagle:out/head" in told
    document = json.loads(run("eagle", "--out=run", "--json").stdout)
    assert document == {"drafter": "eagle:out/head", "folder": "out", "evaluation": None}


@pytest.mark.parametrize("arguments", [["luck"], ["eagle", "--loss=luck"], ["eagle", "--lr=0"]])
def test_a_wrong_request_is_refused_before_a_model_is_loaded(
    run: Command, asked: list[Any], arguments: list[str]
) -> None:
    result = run(*arguments, "--out=run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert not asked
