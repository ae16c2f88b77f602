"""vLLM's server as a child process: signals and the exit code are passed on, and it does end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from outrider.errors import LoadError

_GRACE_S = 15.0
"""Seconds beyond those for draining in which a server may write its last answers and clean up."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_child(
    command: Sequence[str],
    variables: Mapping[str, str],
    drain_seconds: float,
    *,
    grace_s: float = _GRACE_S,
    on_note: Callable[[str], None] = lambda _: None,
) -> int:
    """Run a command to its end and return its exit code, 128 + n where signal n ended it.

    A first SIGTERM, SIGINT or SIGHUP is passed on, so that it drains; a second one, or
    `drain_seconds` and some grace, end all its processes at once. Raises LoadError for a command
    that cannot be started, and KeyboardInterrupt after a SIGINT.
    """
    watch = _Watch(drain_seconds + grace_s, on_note)
    with watch.signals():
        try:
            # A group of its own: Ctrl-C comes from us alone, and no worker of it is left behind.
            child = subprocess.Popen(list(command), env=dict(variables), process_group=0)
        except OSError as error:
            raise LoadError(f"cannot start {command[0]}: {error.strerror or error}") from error
        watch.follow(child.pid)
        code = child.wait()
    if watch.interrupted:
        raise KeyboardInterrupt
    return code if code >= 0 else 128 - code


class _Watch:
    """Passes signals on to a server, and sees to it that all its processes end after the first."""

    def __init__(self, patience_s: float, on_note: Callable[[str], None]) -> None:
        self.interrupted = False
        self._server: int | None = None
        self._first: int | None = None
        self._patience_s = patience_s
        self._on_note = on_note
        self._timer = threading.Timer(patience_s, self._lose_patience)
        self._timer.daemon = True

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Take signals meanwhile, from before the server is there until none of it is left."""
        before = {sig: signal.signal(sig, self._take) for sig in _SIGNALS}
        try:
            yield
        finally:
            self._timer.cancel()
            self._end()
            for sig, handler in before.items():
                signal.signal(sig, handler)

    def follow(self, server: int) -> None:
        """Take on a server that leads a group of processes; what came before it is passed on."""
        self._server = server
        if self._first is not None:
            self._pass_on(self._first)

    def _take(self, sig: int, frame: FrameType | None) -> None:
        self.interrupted |= sig == signal.SIGINT
        if self._first is not None:
            self._end()
            return
        self._first = sig
        self._timer.start()
        self._pass_on(sig)

    def _pass_on(self, sig: int) -> None:
        # To the server alone: it stops its workers itself, once they have finished.
        if self._server is not None:
            with suppress(ProcessLookupError):
                os.kill(self._server, sig)

    def _lose_patience(self) -> None:
        self._on_note(f"vLLM has not ended within {self._patience_s:g} s; ending it")
        self._end()

    def _end(self) -> None:
        if self._server is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._server, signal.SIGKILL)
