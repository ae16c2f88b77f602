"""The engine as the event loop sees it: jobs go in, and feeds come out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from outrider.engine.events import Ticket
from outrider.engine.meter import Snapshot
from outrider.errors import OutriderError
from outrider.server.deltas import Word
from outrider.server.errors import api_error, engine_failed, unavailable
from outrider.server.feeds import Feed, failure
from outrider.server.jobs import Job, Preparer
from outrider.server.settings import ServerSettings
from outrider.server.worker import State, Worker


class Service:
    """Submits jobs to the worker, and hands out what it tells; all in one event loop."""

    def __init__(self, worker: Worker, settings: ServerSettings) -> None:
        self.worker = worker
        self.settings = settings
        self.on_change: Callable[[State], None] = lambda state: None
        """Called with each new state of the worker's."""
        self.created = int(time.time())
        """When the server began, in seconds of the epoch."""
        self._feeds: dict[Ticket, Feed] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state: State = "loading"

    @property
    def state(self) -> State:
        """What the worker is doing, as far as the loop has heard."""
        return self.worker.state if self._state != "loading" else self._state

    @property
    def preparer(self) -> Preparer:
        """What turns bodies into jobs; once the engine is ready."""
        return self.worker.preparer

    @property
    def snapshot(self) -> Snapshot | None:
        """The engine's counters; None until it is loaded."""
        return self.worker.scheduler.snapshot() if self.worker.is_loaded else None

    @property
    def lossy(self) -> str | None:
        """The lossy rule that the server was started with; None until it is loaded."""
        return self.worker.preparer.lossy if self.worker.is_loaded else None

    def start(self) -> None:
        """Let the worker begin, from within the running loop."""
        self._loop = asyncio.get_running_loop()
        self.worker.start(self._hear)

    def require_ready(self) -> None:
        """Raise ApiError if no request can be taken now."""
        state = self.state
        if state == "loading":
            raise unavailable("the model is being loaded", "loading", retry_after_s=5)
        if state == "failed":
            raise engine_failed()
        if state != "ready":
            raise unavailable("the server is shutting down", "draining")

    def submit(self, job: Job) -> Feed:
        """Submit all of a job's requests, or none; raises ApiError.

        The feed is to be closed, whatever becomes of it.
        """
        self.require_ready()
        limit = self.settings.stream_buffer * len(job.requests) if job.body.stream else None
        feed = Feed(self._cancel, limit)
        try:
            for index, request in enumerate(job.requests):
                ticket = self.worker.scheduler.submit(request, client=job.client)
                feed.add(ticket, index)
                self._feeds[ticket] = feed
        except OutriderError as error:
            feed.close()
            raise api_error(error) from error
        return feed

    def _cancel(self, ticket: Ticket) -> None:
        del self._feeds[ticket]
        self.worker.scheduler.cancel(ticket)

    def _hear(self, words: list[Word]) -> None:
        """Pass on what the worker says; called in its thread."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop was closed: there is nobody left to be told
            self._loop.call_soon_threadsafe(self._deliver, words)

    def _deliver(self, words: list[Word]) -> None:
        for word in words:
            feed = self._feeds.get(word.ticket)
            if feed is not None:
                feed.push(word)
                if word.ticket not in feed.tickets:
                    self._feeds.pop(word.ticket, None)
        if not words:
            self._change()

    def _change(self) -> None:
        """Take in a new state; at the end of the worker's work, let nobody wait in vain."""
        state = self.worker.state
        self._state = state
        if state in ("failed", "stopped"):
            for feed in set(self._feeds.values()):
                feed.fail(failure(state))
        self.on_change(state)
