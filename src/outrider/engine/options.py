"""How many requests an engine and its scheduler take at a time: values, checked when made."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.engine.prefill import LEAST_ROWS
from outrider.errors import OptionError


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """How many requests wait and run, and what is kept of them.

    Raises OptionError for a value out of its range.
    """

    max_batch: int = 8
    """Requests that run at once."""
    max_queue: int | None = None
    """Requests that wait beyond those for which places are free; None for no limit."""
    prefill_rows: int | None = None
    """Prompt tokens read in a round, of all requests together; None for no limit."""
    max_prefixes: int = 0
    """Caches of finished requests that are kept for prompts that begin like them."""

    def __post_init__(self) -> None:
        require_count("max_batch", self.max_batch, least=1)
        require_count("max_prefixes", self.max_prefixes, least=0)
        if self.max_queue is not None:
            require_count("max_queue", self.max_queue, least=0, instead="None or ")
        if self.prefill_rows is not None:
            require_count("prefill_rows", self.prefill_rows, least=LEAST_ROWS, instead="None or ")


def require_count(name: str, value: object, *, least: int, instead: str = "") -> None:
    """Raise OptionError for a value that is no integer of at least `least`.

    `instead` are words for what else the option may be.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise OptionError(
            f"{name} is {value!r}; it must be {instead}an integer of at least {least}"
        )
