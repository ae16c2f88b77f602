"""Serving until told to stop: the socket, the signals, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from outrider.errors import OptionError, OutriderError
from outrider.server.app import create_app
from outrider.server.service import Service
from outrider.server.settings import ServerSettings
from outrider.server.worker import State, Worker

if TYPE_CHECKING:
    from outrider.decoder import Decoder

_LOGGER = logging.getLogger("outrider.server")
_LAST_WORDS_S = 1.0  # for answers under way to be written once the engine has ended
_FAILED_S = 5.0  # for those who watch /health to see it fail
_CONNECTIONS_S = 3  # for answers to be read to their ends before connections are cut
_BACKLOG = 2048
# Whoever closes an idle connection first may do so while the other side sends a request, which is
# lost. Clients can tell and try again, so they are to be first: common ones keep theirs for 5 s,
# proxies for up to a minute.
_IDLE_S = 75


class ServerFailedError(OutriderError):
    """The engine failed while it served: an error that no request was to blame for."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 is any free one.

    Raises OptionError for an address that is taken, or not this machine's.
    """
    if not 0 <= port < 2**16:
        raise OptionError(f"port is {port}; it must be from 0 to {2**16 - 1}")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = error.strerror or error
        raise OptionError(f"cannot listen on {host} port {port}: {reason}") from error


def serve(
    load: Callable[[], Decoder],
    settings: ServerSettings,
    listener: socket.socket,
    *,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve on a bound socket until a signal comes, or the engine fails.

    The model is loaded meanwhile; `on_ready` is called once requests are taken. SIGTERM and SIGINT
    let what runs be finished, for `settings.drain_seconds` at most; a second one ends it at once.
    Raises what loading raised, ServerFailedError if the engine fails later, and KeyboardInterrupt
    after a SIGINT.
    """
    service = Service(Worker(load, settings), settings)
    server = OutriderServer(service, on_ready)
    server.run(sockets=[listener])
    service.worker.join(_LAST_WORDS_S)
    error = service.worker.error
    if error is not None:
        if service.worker.is_loaded:
            raise ServerFailedError(f"the engine failed: {error}") from error
        raise error
    if server.interrupted:
        raise KeyboardInterrupt


class OutriderServer(uvicorn.Server):
    """An HTTP server that goes on answering while its engine drains."""

    def __init__(self, service: Service, on_ready: Callable[[], None] = lambda: None) -> None:
        config = uvicorn.Config(
            create_app(service),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_CONNECTIONS_S,
            lifespan="on",
            ws="none",
        )
        super().__init__(config)
        self.interrupted = False
        """Whether SIGINT was what ended it."""
        self._service = service
        self._on_ready = on_ready
        self.loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        service.on_change = self._change

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals as requests to stop, and leave the process to end by itself."""
        before = {sig: signal.signal(sig, self.handle_exit) for sig in _signals()}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, stop at the second."""
        self.interrupted |= sig == signal.SIGINT
        if self.loop is None:
            self.should_exit = True
        else:
            self.loop.call_soon_threadsafe(self.leave)

    def leave(self) -> None:
        """Finish what runs, and end; called again, end at once."""
        worker = self._service.worker
        if self._timer is None and worker.state == "ready":
            seconds = self._service.settings.drain_seconds
            _LOGGER.info("draining, for %g s at most", seconds)
            self._timer = asyncio.get_running_loop().call_later(seconds, worker.stop)
            worker.drain()
        else:
            worker.stop()
            self._exit_soon(_LAST_WORDS_S)

    def _change(self, state: State) -> None:
        if state == "ready":
            self._on_ready()
        elif state in ("stopped", "failed"):
            if self._timer is not None:
                self._timer.cancel()
            was_serving = state == "failed" and self._service.worker.is_loaded
            self._exit_soon(_FAILED_S if was_serving else 0.0)

    def _exit_soon(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, setattr, self, "should_exit", True)


def _signals() -> tuple[signal.Signals, ...]:
    """Return the signals that may be taken here: none outside the main thread."""
    try:
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    except ValueError:
        return ()
    return (signal.SIGTERM, signal.SIGINT)
