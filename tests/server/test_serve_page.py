"""docs/serve.md tells of every option, route, field, status and metric that there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Running, serving
from typer.main import get_command

from outrider.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
NAMES = set(re.findall(r"`([^`\n]+)`", PAGE))
WORDS = {word for name in NAMES for word in re.split(r"[^\w-]+", name)}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as found:
        yield found


def test_every_option_is_told() -> None:
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    options = {name for option in command.params for name in option.opts if name[0] == "-"}
    assert options - {"--help"} <= NAMES


def test_every_route_and_status_is_told(running: Running) -> None:
    paths = running.http.get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method, description in methods.items():
            assert f"{method.upper()} {path.replace('{name}', 'NAME')}" in NAMES
            for status in set(description["responses"]) - {"200"}:
                assert re.search(rf"^\| .*\b{status}\b.* \|", PAGE, re.MULTILINE), status


def test_every_field_is_told(running: Running) -> None:
    schemas = running.http.get("/openapi.json").json()["components"]["schemas"]
    for name in ("Chat", "Completion"):
        assert set(schemas[name]["properties"]) <= WORDS, name


def test_every_metric_is_told(running: Running) -> None:
    running.complete(max_tokens=2)
    text = running.http.get("/metrics").text
    for name, kind in re.findall(r"^# TYPE outrider_(\w+) (\w+)$", text, re.MULTILINE):
        told = name.removesuffix("_created")
        assert told in WORDS or (kind == "gauge" and name.endswith("_created")), name
