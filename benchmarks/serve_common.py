"""What the recipes for the server share: servers on loopback, and streams as clients read them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from outrider.decoder import Decoder
from outrider.server.run import OutriderServer, bind
from outrider.server.service import Service
from outrider.server.settings import ServerSettings
from outrider.server.worker import Worker
from outrider.workload.files import WorkloadPrompt, default_workload, read_workload

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

_LISTENING = "listening on "
_LOADING_S = 1800.0  # passes may have to be compiled
_ENDING_S = 60.0


def workload(path: Path | None, limit: int | None) -> Sequence[WorkloadPrompt]:
    """Return the prompts of a file, or those that come with outrider."""
    prompts = default_workload() if path is None else read_workload(path)
    return prompts[:limit]


def first_message(prompt: WorkloadPrompt) -> list[dict[str, str]]:
    """Return the messages of a chat that begins with a prompt."""
    if isinstance(prompt.prompt, str):
        return [{"role": "user", "content": prompt.prompt}]
    return [dict(message) for message in prompt.prompt]


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """A server in this process, whose insides can be looked at."""

    service: Service
    url: str


@contextmanager
def local_server(load: Callable[[], Decoder], settings: ServerSettings) -> Iterator[Local]:
    """Serve in a thread until the body ends."""
    service = Service(Worker(load, settings), settings)
    with bind("127.0.0.1", 0) as listener:
        server = OutriderServer(service)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            _await_ready(service)
            yield Local(service, f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            if server.loop is not None and thread.is_alive():
                for _ in range(2):
                    server.loop.call_soon_threadsafe(server.leave)
            thread.join(_ENDING_S)
            service.worker.join(_ENDING_S)


def _await_ready(service: Service) -> None:
    deadline = time.monotonic() + _LOADING_S
    while service.state == "loading" and time.monotonic() < deadline:
        time.sleep(0.01)
    if service.state != "ready":
        raise RuntimeError(f"the server is {service.state}: {service.worker.error}")


@contextmanager
def spawned_server(arguments: Sequence[str]) -> Iterator[str]:
    """Run `outrider serve` with these arguments until the body ends; yields its URL."""
    command = [sys.executable, "-m", "outrider", "serve", "--port", "0", *arguments]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # empty if it ends before it listens
            if not line.startswith(_LISTENING):
                process.wait(_ENDING_S)
                raise RuntimeError(f"the server did not start: {' '.join(command)}")
            yield line.removeprefix(_LISTENING).split()[0]
        except Exception:
            log.seek(0)
            sys.stderr.write(log.read()[-4000:])  # what the server says of it
            raise
        finally:
            process.terminate()
            try:
                process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                process.kill()


async def stream_events(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield the objects of a stream; raises ValueError for one that does not end as it should."""
    last = ""
    async for line in response.aiter_lines():
        if line:
            last = line.removeprefix("data: ")
            if last != "[DONE]":
                yield json.loads(last)
    if last != "[DONE]":
        raise ValueError(f"the stream ended with {last!r}")


def gauges(metrics: str) -> dict[str, float]:
    """Return the values of `/metrics` by name, labels included."""
    rows = [line.rpartition(" ") for line in metrics.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows if name}
