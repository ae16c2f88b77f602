"""A lossy rule on the command line: by its own word only, and named in every output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_decoder import FakeDecoder
from typer.testing import CliRunner, Result

import outrider
from outrider.cli.main import app


def generate(monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[Result, dict[str, Any]]:
    """Run the command with a decoder that counts as lossy when it is loaded so."""
    asked: dict[str, Any] = {}

    def load(target: str, **given: Any) -> FakeDecoder:
        asked.update(given)
        return FakeDecoder(counters={"lossy": given.get("lossy")})

    monkeypatch.setitem(outrider.__dict__, "load", load)
    return CliRunner().invoke(app, ["generate", "Hello", *options]), asked


def test_the_word_lossy_reaches_the_decoder_and_every_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, asked = generate(monkeypatch, "--lossy", "typical:0.09,0.3")
    assert asked["lossy"] == "typical:0.09,0.3"
    assert "LOSSY (typical:0.09,0.3): this text may differ" in shown.stderr
    document, _ = generate(monkeypatch, "--lossy", "typical:0.09,0.3", "--json")
    values = json.loads(document.stdout)
    assert values["lossy"] == values["stats"]["lossy"] == "typical:0.09,0.3"


def test_without_the_word_nothing_is_lossy_and_nothing_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, asked = generate(monkeypatch)
    assert "lossy" not in asked
    assert "LOSSY" not in shown.stderr
    document, _ = generate(monkeypatch, "--json")
    assert "lossy" not in json.loads(document.stdout)


def test_no_value_of_rule_is_lossy(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("typical", "lenience:0.5", "fly:2,0.3"):
        result, asked = generate(monkeypatch, "--rule", value)
        assert (result.exit_code, asked) == (2, {})


def test_a_comparison_that_expects_equal_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = generate(monkeypatch, "--lossy", "fly:2,0.3", "--compare")
    assert result.exit_code != 0
    assert asked == {}
