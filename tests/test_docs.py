"""What the documents show can be run."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.cli.main import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def python_of(page: Path) -> str:
    return "\n".join(blocks(page.read_text(encoding="utf-8"), "python"))


def commands() -> list[str]:
    lines = [line for block in blocks(README, "console") for line in block.splitlines()]
    return [line for line in lines if line.startswith("outrider ")]


@pytest.mark.embedded
@pytest.mark.parametrize("page", [p for p in PAGES if python_of(p)], ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page: Path) -> None:
    block = python_of(page)
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(compile(block, page.name, "exec"), {})
    assert shown.getvalue().strip()


@pytest.mark.embedded
@pytest.mark.parametrize("command", commands())
def test_the_commands_of_the_front_page_run(command: str) -> None:
    command, _, prompt = command.partition("<")
    # The placeholders stand for models of the reader's; ours can be both.
    command = command.replace("TARGET", "smollm2-135m").replace("SMALLER_MODEL", "smollm2-135m")
    arguments = shlex.split(command)[1:]
    if arguments[0] == "generate":
        arguments += ["--max-new-tokens", "8"]
    result = CliRunner().invoke(app, arguments, input="Say hello." if prompt else None)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / link).exists(), link
    for named in re.findall(r"`((?:engine|drafters|targets|verification|sampling)/\w+\.py)`", text):
        assert (ROOT / "src" / "outrider" / named).exists(), named


def test_every_make_target_a_page_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for target in re.findall(r"^make (\w+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
