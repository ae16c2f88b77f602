"""Text on a screen as it is written: plain, or coloured by where each token came from."""

from __future__ import annotations

import time
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from outrider.types import Chunk

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from outrider.cli.explain import Explanation
    from outrider.engine.result import Result
    from outrider.stream import Stream

_STYLES = {"accepted": "green", "recovered": "yellow", "bonus": "cyan", "plain": "default"}
# A model may write anything, the sequences that drive a terminal included: show those as symbols.
_VISIBLE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: 0x2421}


def show(stream: Stream, tokenizer: PreTrainedTokenizerBase | None) -> Result:
    """Show a stream on stdout as it comes: in colour on a terminal, elsewhere just its text."""
    console = Console()
    with closing(stream):
        if console.is_terminal and tokenizer is not None:
            with _Screen(console, tokenizer) as screen:
                for chunk in stream:
                    screen.show(chunk)
        else:
            for chunk in stream:
                typer.echo(chunk.text, nl=False)
            typer.echo()
    return stream.result


def show_explanation(explanation: Explanation) -> None:
    """Show on stderr which drafts were chosen, what they gained, and why they were no longer."""
    console = Console(stderr=True, markup=False, highlight=False)
    console.print(explanation.table())
    console.print(explanation.reason, soft_wrap=True)


class Painter:
    """Colours the text of chunks by the source of the token each character came from."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        from outrider.engine.detokenize import Detokenizer

        self._detokenizer = Detokenizer(tokenizer)
        self._ahead: deque[tuple[int, str]] = deque()  # characters to come, and their style

    def paint(self, chunk: Chunk) -> Text:
        """Return the text of the next chunk; text held back keeps its colour until it comes."""
        for token in chunk.tokens:
            length = len(self._detokenizer.push(token.id))
            self._ahead.append((length, _STYLES[token.source]))
        painted, rest = Text(), chunk.text
        while rest and self._ahead:
            length, style = self._ahead.popleft()
            painted.append(rest[:length].translate(_VISIBLE), style)
            if length > len(rest):
                self._ahead.appendleft((length - len(rest), style))
            rest = rest[length:]
        return painted.append(rest.translate(_VISIBLE))


class _Screen:
    """A terminal: finished lines scroll away, the last one stays above a line of progress."""

    def __init__(self, console: Console, tokenizer: PreTrainedTokenizerBase) -> None:
        self._console = console
        self._painter = Painter(tokenizer)
        self._line = Text()
        self._num_tokens = 0
        self._num_rounds = 0
        self._started = time.perf_counter()
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> _Screen:
        self._live.start()
        self._live.update(Text("reading the prompt", style="dim"), refresh=True)
        return self

    def show(self, chunk: Chunk) -> None:
        """Add one round's text, and count it."""
        self._num_tokens += len(chunk.tokens)
        self._num_rounds += 1
        self._line.append_text(self._painter.paint(chunk))
        # Only lines that can no longer change leave the part of the screen that is redrawn.
        *finished, self._line = self._line.wrap(self._console, self._console.width, tab_size=4)
        self._live.update(Group(self._line, self._progress()), refresh=not finished)
        if finished:
            self._live.console.print(*finished, sep="\n")

    def __exit__(self, *exception: object) -> None:
        self._live.stop()
        self._console.print(self._line)
        self._console.print(_legend())

    def _progress(self) -> Text:
        seconds = time.perf_counter() - self._started
        length = self._num_tokens / self._num_rounds
        counts = f"{self._num_tokens} tokens, {self._num_tokens / seconds:.1f} tokens/s"
        line = f"{counts}, acceptance length {length:.2f}"
        return Text(line, style="dim", no_wrap=True, overflow="ellipsis")


def _legend() -> Text:
    names = Text(", ").join(Text(source, style) for source, style in _STYLES.items())
    return Text.assemble(("tokens: ", "dim"), names)
