"""What a client is told when a request is not answered: OpenAI's error object, and its status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from outrider.errors import (
    DrainingError,
    OptionError,
    OutriderError,
    PromptError,
    QueueFullError,
)

CLIENT_GONE = 499
"""The status that is logged and counted for a client that went away; nobody receives it."""


class ApiError(Exception):
    """A request that is answered with an error; `param` names the field it is about."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def to_dict(self) -> dict[str, Any]:
        """Return OpenAI's error object."""
        error = {
            "message": self.message,
            "type": _type(self.status),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the error of a request that is wrong in itself."""
    return ApiError(400, message, param=param, code=code)


def unavailable(message: str, code: str, *, retry_after_s: int = 1) -> ApiError:
    """Return the error of a request that came when none could be taken."""
    return ApiError(503, message, code=code, headers={"Retry-After": str(retry_after_s)})


def gone() -> ApiError:
    """Return what stands for the answer to a client that is no longer there."""
    return ApiError(CLIENT_GONE, "the client has gone away", code="client_gone")


def engine_failed() -> ApiError:
    """Return the error of every request that waits while the engine breaks down."""
    return ApiError(500, "the engine has failed; the server must be started again", code="engine")


def api_error(error: Exception, *, has_constraints: bool = False) -> ApiError:
    """Return what a client is told of an error; `has_constraints`: its own options ban tokens.

    What is not an error of ours is a fault of the server, of which a client learns no more.
    """
    if isinstance(error, ApiError):
        return error
    text = str(error)
    if isinstance(error, QueueFullError):
        seconds = max(1, math.ceil(error.retry_after_s))
        return ApiError(429, text, code="queue_full", headers={"Retry-After": str(seconds)})
    if isinstance(error, DrainingError):
        return unavailable(text, "draining")
    if isinstance(error, PromptError):
        return invalid(text, "prompt")
    if isinstance(error, OptionError) or (isinstance(error, OutriderError) and has_constraints):
        return invalid(text)
    if isinstance(error, OutriderError):
        return ApiError(500, text, code="engine")
    return ApiError(500, "the server had an error of its own", code="internal")


def _type(status: int) -> str:
    if status == 401:
        return "authentication_error"
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"
