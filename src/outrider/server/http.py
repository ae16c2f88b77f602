"""The two sides of a connection: bodies that come in, and streams that go out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outrider.server.errors import ApiError, gone

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
_MOST_DISCARDED = 16  # times the limit: what is read of a body that is too large, so as to answer
_CLOSE = {"Connection": "close"}  # or else the rest of a body would be read all the same
_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # a proxy that collects chunks would undo the stream
}


async def read_body(request: Request, *, most_bytes: int, seconds: float) -> bytes:
    """Return the body of a request, which must be JSON by its own account.

    Raises ApiError: 415 for another type, 413 for one that is too large, 408 for one that does not
    arrive in time, and `gone` for one that breaks off.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, f"the body is {kind or 'of no type'}; it must be application/json")
    try:
        async with asyncio.timeout(seconds):
            return await _collect(request, most_bytes)
    except TimeoutError as error:
        message = f"the body did not arrive within {seconds:g} s"
        raise ApiError(408, message, headers=_CLOSE) from error
    except ClientDisconnect as error:
        raise gone() from error


async def _collect(request: Request, most_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes * _MOST_DISCARDED:
            break
        if size <= most_bytes:
            parts.append(part)
    if size > most_bytes:
        message = f"the body has more than {most_bytes} bytes, which is the limit"
        raise ApiError(413, message, headers=_CLOSE)
    return b"".join(parts)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns; end it, and raise ApiError, if the client goes away first."""
    return await _race(work, request.receive)


async def _race(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise gone()
        return task.result()
    finally:
        leaving.cancel()
        task.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A stream of server-sent events, which ends when the client goes away."""

    def __init__(self, events: AsyncGenerator[bytes], close: Callable[[], None]) -> None:
        """`close` is called at the end, whatever that is, even before the first event."""
        self.status_code = 200
        self.background = None
        self.init_headers(_STREAM_HEADERS)
        self._events = events
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the events."""
        try:
            await _race(self._write(send), receive)
        except ApiError:
            return  # nobody is there to be told
        finally:
            self._close()

    async def _write(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self._events) as events:
            async for part in events:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def event(value: Any) -> bytes:
    """Return one event with a JSON value."""
    return b"data: " + encoded(value) + b"\n\n"


def encoded(value: Any) -> bytes:
    """Return a value as JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()
