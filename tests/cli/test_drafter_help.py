"""What a drafter may be called is told wherever one is chosen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from outrider.cli.main import app
from outrider.drafters.spec import DrafterKind, parse_spec
from outrider.errors import OptionError

PAGE = (Path(__file__).parents[2] / "docs" / "drafters.md").read_text(encoding="utf-8")


def endings() -> list[str]:
    """Return every option that may follow a draft model's name, as the refusal of another does."""
    with pytest.raises(OptionError) as refused:
        parse_spec("model:NAME?other")
    return re.findall(r"NAME(\?\w+=\w+)", str(refused.value))


def helps() -> dict[str, str]:
    """Return the help of --drafter of each command that has it."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    return {
        name: getattr(option, "help", None) or ""
        for name, command in root.commands.items()
        for option in command.params
        if "--drafter" in option.opts
    }


def test_the_commands_that_choose_a_drafter_are_known() -> None:
    assert set(helps()) == {"generate", "info", "prove", "serve", "tune"}
    assert {"?way=tokens", "?way=text"} <= set(endings())


@pytest.mark.parametrize("command", helps())
def test_the_help_of_drafter_names_every_kind_and_every_ending(command: str) -> None:
    text = helps()[command]
    # With a server each request brings its own prediction.
    kinds = [one for one in get_args(DrafterKind) if (command, one) != ("serve", "prediction")]
    assert [one for one in (*kinds, *endings()) if one not in text] == []


def test_the_page_on_drafters_names_every_kind_and_every_ending() -> None:
    assert [one for one in get_args(DrafterKind) if f"`{one}" not in PAGE] == []
    assert [one for one in endings() if f"`{one}`" not in PAGE] == []
