"""The process a peer runs in: requests and replies, one JSON document a line.

Between its turns the process is stopped, so that threads which wait by spinning take no time from
others that are measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from outrider.bench.peers.environment import PeerError
from outrider.environments import foreign_variables

ADAPTERS = Path(__file__).parent / "adapters"
_GRACE_S = 5.0
_TAIL_BYTES = 4096
_MOST_SHOWN = 300


def adapter_command(python: Path, adapter: str) -> list[str]:
    """Return the command that starts an adapter of ours with a peer's Python."""
    return [str(python), str(ADAPTERS / "run.py"), adapter]


class PeerProcess:
    """A running adapter; a stopped one goes on for as long as it is asked something."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        """Start a command, called `name` in errors; `environment` is added to this process's own.

        What it prints goes to `log`, or to a temporary file.
        """
        self.name = name
        self._log: IO[bytes] = _open_log(log)
        # A group of its own, so that all of it can be stopped. It stays in this session: were
        # outrider killed, the system would end a stopped group that nobody is left to resume.
        group: dict[str, Any] = {} if sys.platform == "win32" else {"process_group": 0}
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=foreign_variables(environment or {}),
                **group,
            )
        except OSError as error:
            self._log.close()
            raise PeerError(f"{name} cannot be started: {error.strerror or error}") from error
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        """The number the system knows it by."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can still be asked."""
        return not self._log.closed and self._process.poll() is None

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and return the reply; the process is stopped before and after.

        Raises PeerError, with the end of what it printed: for an error it reports, and, having
        ended the process, for one that is silent for so long, dies or replies with anything else.
        """
        if not self.is_alive:
            raise PeerError(f"{self.name} has ended")
        self._signal("SIGCONT")
        try:
            reply = self._exchange(request, seconds)
        except PeerError:
            self.close()
            raise
        self._signal("SIGSTOP")
        if "error" in reply:
            raise PeerError(f"{self.name} failed: {reply['error']}")
        return reply

    def close(self) -> None:
        """End the process; may be called at any time."""
        if self._log.closed:
            return
        self._signal("SIGCONT")
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal("SIGKILL")
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _exchange(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise PeerError(f"{self.name} gave no answer in {seconds:g} s{self._tail()}") from None
        except OSError:  # it closed its end
            line = None
        if line is None:
            self._end_silently()
            code = self._process.returncode
            raise PeerError(f"{self.name} ended with exit code {code}{self._tail()}")
        try:
            reply: object = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            shown = line.decode(errors="replace").strip()[:_MOST_SHOWN]
            raise PeerError(f"{self.name} replied with what is no JSON object: {shown!r}")
        return reply

    def _end_silently(self) -> None:
        """Wait for a process that closed its stdout, or make it end."""
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as replies:
            for line in replies:
                self._lines.put(line)
        self._lines.put(None)

    def _signal(self, name: str) -> None:
        """Send a signal to the whole group, where the system has groups and that signal."""
        if sys.platform != "win32" and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, getattr(signal, name))

    def _tail(self) -> str:
        """Return the last line it printed, ready to be put behind an error."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - _TAIL_BYTES))
        lines = self._log.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {last[:_MOST_SHOWN]}" if last else ""


def _open_log(path: Path | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile()
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w+b")
