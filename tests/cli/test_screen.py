from __future__ import annotations

import io
from typing import Any, cast

import pytest
from fake_decoder import WORDS, FakeDecoder, FakeTokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from outrider.cli import screen
from outrider.cli.screen import Painter, show
from outrider.types import Chunk, Source, Token

STYLES: dict[Source, str] = {"accepted": "green", "recovered": "yellow", "bonus": "cyan"}
TOKENIZER = cast(Any, FakeTokenizer())


def styles(text: Text) -> list[str]:
    """Return the style of each character."""
    found = ["default"] * len(text)
    for span in text.spans:
        found[span.start : span.end] = [str(span.style)] * (span.end - span.start)
    return found


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["accepted", "recovered", "bonus", "plain"])),
        max_size=8,
    ),
    st.integers(0, 9),
    st.integers(1, 4),
)
def test_each_character_has_the_colour_of_its_token_however_late_it_comes(
    tokens: list[tuple[int, Source]], lag: int, size: int
) -> None:
    whole = "".join(WORDS[token] for token, _ in tokens)
    expected = [STYLES.get(source, "default") for token, source in tokens for _ in WORDS[token]]
    painter, painted, shown = Painter(TOKENIZER), Text(), 0
    for start in range(0, len(tokens), size):
        known = len("".join(WORDS[token] for token, _ in tokens[: start + size]))
        safe = known if start + size >= len(tokens) else max(shown, known - lag)
        chunk = Chunk(
            whole[shown:safe], tuple(Token(*item) for item in tokens[start : start + size])
        )
        painted.append_text(painter.paint(chunk))
        shown = safe
    assert painted.plain == whole
    assert styles(painted) == expected


def test_what_a_model_writes_cannot_drive_the_terminal() -> None:
    painted = Painter(TOKENIZER).paint(Chunk(WORDS[6] + "\t\n", (Token(6, "plain"),)))
    assert painted.plain == "\u241b[31m\t\n"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Console:
    console = Console(
        file=io.StringIO(), force_terminal=True, width=80, color_system="standard", _environ={}
    )
    monkeypatch.setattr(screen, "Console", lambda: console)
    return console


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_shows_coloured_text_progress_and_a_legend(terminal: Console) -> None:
    result = show(cast(Any, FakeDecoder().stream("Hello")), TOKENIZER)
    assert result.token_ids == (0, 1, 2, 3, 4, 5)
    output = written(terminal)
    lines = [
        "\x1b[39mAhoy\x1b[0m\x1b[32m there\x1b[0m\x1b[32m, sailor\x1b[0m\x1b[36m!\x1b[0m\n",
        "\x1b[32m  Fair\x1b[0m\x1b[33m winds\x1b[0m\n",
        "\x1b[2mtokens: \x1b[0m\x1b[32maccepted\x1b[0m, \x1b[33mrecovered\x1b[0m, "
        "\x1b[36mbonus\x1b[0m, \x1b[39mplain\x1b[0m\n",
    ]
    assert output.endswith("".join(lines[1:]))
    assert lines[0] in output
    assert "1 tokens, " in output and "6 tokens, " in output
    assert "acceptance length 2.00" in output


def test_a_narrow_terminal_gets_every_word(terminal: Console) -> None:
    terminal.width = 8
    show(cast(Any, FakeDecoder().stream("Hello")), TOKENIZER)
    output = written(terminal)
    assert all(word in output for word in ("Ahoy", "there", "sailor", "Fair", "winds"))


def test_an_interrupted_screen_shows_the_cursor_again(terminal: Console) -> None:
    decoder = FakeDecoder(error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        show(cast(Any, decoder.stream("Hello")), TOKENIZER)
    assert written(terminal).rindex("\x1b[?25h") > written(terminal).rindex("\x1b[?25l")
    assert decoder.streams[0].is_closed
