"""What is noted of one HTTP request, for the log and the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from starlette.types import Scope

Aborted: TypeAlias = Literal["disconnect", "slow_reader", "error"]


@dataclass(slots=True)
class Record:
    """One HTTP request; written to while it is answered."""

    request_id: str
    route: str = "unknown"
    """The route that serves it, as the application names it: no part of it is the client's."""
    aborted: Aborted | None = None
    """Why an answer was not written to its end."""
    error: str | None = None
    lossy: str | None = None
    """The lossy rule its answers were written with, if there was one."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the log line of the request tells besides."""


def record_of(scope: Scope) -> Record:
    """Return the record that goes with a request."""
    found: Record = scope["state"]["record"]
    return found
