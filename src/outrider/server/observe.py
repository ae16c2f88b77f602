"""Around every request: an id that comes back with the answer, a line in the log, a count."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.server.errors import CLIENT_GONE
from outrider.server.logs import FIELDS
from outrider.server.metrics import Metrics
from outrider.server.record import Record

_LOGGER = logging.getLogger("outrider.server.requests")
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_WATCHED = ("/health", "/ready", "/metrics")  # asked every few seconds
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class Observe:
    """Middleware that gives each request a record, and tells log and metrics what became of it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = Record(_request_id(scope))
        scope.setdefault("state", {})["record"] = record
        started, status = time.perf_counter(), 0

        async def observed(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = record.request_id
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, observed)
        except Exception:  # the application has answered with status 500 by now
            _LOGGER.exception("a request failed", extra={FIELDS: {"request_id": record.request_id}})
        finally:
            self._tell(scope, record, status or 500, time.perf_counter() - started)

    def _tell(self, scope: Scope, record: Record, status: int, seconds: float) -> None:
        route = scope.get("route")
        record.route = getattr(route, "path", record.route)
        if status == CLIENT_GONE:
            record.aborted = "disconnect"
        self._metrics.count(record, status, seconds)
        line = {
            "request_id": record.request_id,
            "method": scope["method"],
            "route": record.route,
            "status": status,
            "seconds": round(seconds, 6),
        }
        line |= {"aborted": record.aborted} if record.aborted else {}
        line |= {"error": record.error} if record.error else {}
        _LOGGER.log(_level(record, status), "request", extra={FIELDS: line | record.facts})


def _level(record: Record, status: int) -> int:
    if status >= 500 and status != 503:
        return logging.ERROR
    return logging.DEBUG if record.route in _WATCHED else logging.INFO


def _request_id(scope: Scope) -> str:
    """Return the id that the client gave, if it is one, or a new one."""
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _ID.fullmatch(given) else uuid.uuid4().hex
