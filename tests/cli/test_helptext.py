from __future__ import annotations

from pathlib import Path

from outrider.cli.helptext import page

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def test_the_page_on_the_command_line_is_what_help_says() -> None:
    """After a change: python -m outrider.cli.helptext > docs/command-line.md"""
    assert PAGE.read_text() == page()
