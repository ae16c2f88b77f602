"""The page docs/command-line.md, made from the commands' own help.

Run: python -m outrider.cli.helptext > docs/command-line.md
"""

from __future__ import annotations

import sys

import typer
from typer.core import TyperGroup
from typer.main import get_command

from outrider.cli.main import app

_WIDTH = 98
_INTRODUCTION = """\
# Command line

Results go to stdout and everything else to stderr. On a terminal, text is coloured by where each
token came from; into a file or a pipe goes the text alone. Exit codes: 0 done; 1 failed, or
`--compare` or `tune` found different tokens, or `prove` did not prove; 2 a wrong request; 130
interrupted.
"""


def page() -> str:
    """Return the page: the help of `outrider`, then of each of its commands."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    context = typer.Context(root, info_name="outrider", terminal_width=_WIDTH)
    sections = [_section("outrider", root.get_help(context))]
    for name, command in sorted(root.commands.items()):
        inner = typer.Context(command, info_name=name, parent=context, terminal_width=_WIDTH)
        sections.append(_section(f"outrider {name}", command.get_help(inner)))
    return "\n".join([_INTRODUCTION, *sections])


def _section(title: str, text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return f"## {title}\n\n```text\n{lines}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(page())
