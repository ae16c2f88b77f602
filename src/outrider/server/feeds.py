"""What comes of one HTTP request, on its way from the worker to whoever writes it out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from outrider.engine.events import Ticket
from outrider.server.deltas import Delta, Ended, Word
from outrider.server.errors import ApiError, api_error, engine_failed, unavailable


class Feed:
    """The deltas of a job's answers, in the order in which they came; belongs to the event loop.

    Close it to end what still runs. With a `limit`, one that is not read is closed when more than
    so many deltas wait, and ends with an error.
    """

    def __init__(self, cancel: Callable[[Ticket], None], limit: int | None = None) -> None:
        self._cancel = cancel
        self._limit = limit
        self._tickets: dict[Ticket, int] = {}
        self._waiting: deque[tuple[int, Delta]] = deque()
        self._changed = asyncio.Event()
        self._error: ApiError | None = None
        self.is_overrun = False
        """Whether it was closed because nobody read it."""

    @property
    def tickets(self) -> Sequence[Ticket]:
        """The tickets of the answers that are not finished."""
        return tuple(self._tickets)

    def add(self, ticket: Ticket, index: int) -> None:
        """Take note that answer `index` was submitted."""
        self._tickets[ticket] = index

    def push(self, word: Word) -> None:
        """Take a word of the worker's about one of the answers."""
        index = self._tickets.get(word.ticket)
        if index is None:  # it was closed meanwhile
            return
        if isinstance(word, Ended):
            params = word.ticket.request.params
            constrained = params.grammar is not None or bool(params.logit_bias)
            error = word.error or unavailable("the request was cancelled", "cancelled")
            self.fail(api_error(error, has_constraints=constrained))
            return
        self._waiting.append((index, word))
        if word.finish_reason is not None:
            del self._tickets[word.ticket]
        if self._limit is not None and len(self._waiting) > self._limit and self._tickets:
            self.is_overrun = True
            self.fail(ApiError(408, "the stream was not read fast enough", code="slow_reader"))
        self._changed.set()

    def fail(self, error: ApiError) -> None:
        """End with an error, after what has come so far."""
        if self._error is None:
            self._error = error
        self.close()
        self._changed.set()

    def close(self) -> None:
        """Cancel the answers that are not finished."""
        tickets, self._tickets = self._tickets, {}
        for ticket in tickets:
            self._cancel(ticket)

    async def take(self) -> list[tuple[int, Delta]]:
        """Wait for news, and return all there is: (answer, delta); [] once all is told.

        Raises ApiError if an answer failed.
        """
        await self.arrive()
        found = list(self._waiting)
        self._waiting.clear()
        return found

    async def arrive(self) -> None:
        """Wait until there is news, or all is told; raises ApiError for a failure before that."""
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if not self._tickets:
                return
            self._changed.clear()
            await self._changed.wait()


def failure(state: str) -> ApiError:
    """Return what those are told who wait while the worker comes to its end."""
    if state == "failed":
        return engine_failed()
    return unavailable("the server is shutting down", "shutting_down")
