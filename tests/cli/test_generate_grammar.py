"""The options of `outrider generate` that hold the text to a grammar."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_decoder import FakeDecoder
from typer.testing import CliRunner, Result

import outrider
from outrider.cli.main import app
from outrider.errors import OptionError
from outrider.sampling.grammar import Grammar

SCHEMA = {"type": "object", "properties": {"z": {}, "a": {"type": "integer"}}}
Command = Callable[..., Result]


@pytest.fixture
def decoder() -> FakeDecoder:
    return FakeDecoder()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, decoder: FakeDecoder) -> Command:
    def load(target: str, **options: Any) -> FakeDecoder:
        return decoder

    monkeypatch.setitem(outrider.__dict__, "load", load)
    return lambda *arguments: CliRunner().invoke(app, ["generate", "Hello", *arguments])


@pytest.mark.parametrize(
    ("option", "name", "text", "grammar"),
    [
        ("--json-schema", "item.json", json.dumps(SCHEMA), Grammar.json_schema(SCHEMA)),
        ("--grammar", "list.lark", 'start: "é"+\n', Grammar.lark('start: "é"+\n')),
        ("--grammar", "list", 'start: "a"', Grammar.lark('start: "a"')),
        ("--grammar", "list.gbnf", 'root ::= "a"', Grammar.gbnf('root ::= "a"')),
    ],
)
def test_a_file_holds_the_text_to_what_it_says(
    run: Command,
    decoder: FakeDecoder,
    tmp_path: Path,
    option: str,
    name: str,
    text: str,
    grammar: Grammar,
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    result = run(option, str(tmp_path / name))
    assert result.exit_code == 0, result.output
    assert [call["grammar"] for call in decoder.calls] == [grammar]


def test_a_regular_expression_is_an_argument(run: Command, decoder: FakeDecoder) -> None:
    assert run("--regex", r"\d+").exit_code == 0
    assert decoder.calls[0]["grammar"] == Grammar.regex(r"\d+")


def test_without_these_options_the_text_is_free(run: Command, decoder: FakeDecoder) -> None:
    assert run().exit_code == 0
    assert "grammar" not in decoder.calls[0]


def test_comparing_holds_both_sides_to_the_grammar(run: Command, decoder: FakeDecoder) -> None:
    assert run("--regex", "a", "--compare").exit_code == 0
    assert [call["grammar"] for call in decoder.calls] == [Grammar.regex("a")] * 3


def test_a_text_is_held_to_one_grammar(run: Command, decoder: FakeDecoder, tmp_path: Path) -> None:
    result = run("--regex", "a", "--grammar", str(tmp_path / "missing"))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --regex and --grammar are given")
    assert not decoder.calls


@pytest.mark.parametrize(
    ("option", "content", "reason"),
    [
        ("--json-schema", None, "cannot be read"),
        ("--grammar", None, "cannot be read"),
        ("--grammar", b"\xff", "cannot be read"),
        ("--json-schema", b"{", "no JSON"),
        ("--json-schema", b"[]", "expected an object"),
        ("--grammar", b'start[temperature=1]: "a"', "temperature"),
    ],
)
def test_a_file_that_is_no_grammar_is_a_wrong_request(
    run: Command,
    decoder: FakeDecoder,
    tmp_path: Path,
    option: str,
    content: bytes | None,
    reason: str,
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    result = run(option, str(file))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ") and reason in result.stderr
    assert result.stderr.count("\n") == 1
    assert not decoder.calls


def test_a_grammar_that_cannot_be_followed_is_a_wrong_request(
    run: Command, decoder: FakeDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OptionError("grammar (regex): unclosed group")

    monkeypatch.setattr(decoder, "stream", refuse)
    result = run("--regex", "(")
    assert (result.exit_code, result.stderr) == (2, "error: grammar (regex): unclosed group\n")
