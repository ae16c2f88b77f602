"""What a scheduler hands out: tickets for requests, and word of how these get on."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from outrider.engine.request import Request
from outrider.engine.state import RequestState
from outrider.types import Chunk


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """A request that was taken; each has its own, even of equal requests."""

    number: int
    request: Request
    client: Hashable
    """Whose turn it uses up; None for all who do not say."""
    submitted_s: float
    """By the clock of the engine."""


@dataclass(frozen=True, slots=True, eq=False)
class Emitted:
    """A round added a chunk; one with a finish reason is the last word of its request."""

    ticket: Ticket
    chunk: Chunk
    state: RequestState
    """The request as it stands, to be read and not changed."""


@dataclass(frozen=True, slots=True, eq=False)
class Failed:
    """A request ended with an error: its last word."""

    ticket: Ticket
    error: Exception


@dataclass(frozen=True, slots=True, eq=False)
class Cancelled:
    """A request ended because it was cancelled: its last word."""

    ticket: Ticket


Event: TypeAlias = Emitted | Failed | Cancelled
