"""What a server is told when it starts: names, keys and limits, checked once."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.engine.options import SchedulerOptions
from outrider.errors import OptionError

MOST_CHOICES = 128
"""Answers that one request may ask for, all its prompts together."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Names, keys and limits of a server; raises OptionError for a value out of its range."""

    model: str
    """The name that requests give."""
    api_keys: tuple[str, ...] = ()
    """A request must bear one of them, if there are any."""
    cors_origins: tuple[str, ...] = ()
    """Web sites whose pages may send requests; "*" for all."""
    max_body_bytes: int = 2**20
    max_prompt_tokens: int | None = None
    """None: as many as the model holds."""
    max_new_tokens: int = 2048
    """Most tokens an answer may ask for; a chat that asks for none gets as many."""
    max_queue: int = 64
    prefill_rows: int = 256
    """Prompt tokens read between two rounds of the others."""
    max_prefixes: int = 8
    """Caches of finished requests that are kept for the next turn."""
    stream_buffer: int = 1024
    """Rounds that a stream may be ahead of whoever reads it; then it is cancelled."""
    body_seconds: float = 30.0
    """A body must have arrived by then."""
    drain_seconds: float = 30.0
    """After SIGTERM, what runs may go on so long."""
    log_prompts: bool = False

    def __post_init__(self) -> None:
        if not self.model:
            raise OptionError("name is empty; a server needs a name for its model")
        if not all(self.api_keys):
            raise OptionError("api-key is empty; leave it out for a server without keys")
        for name, least in (
            ("max_body_bytes", 1),
            ("max_prompt_tokens", 1),
            ("max_new_tokens", 1),
            ("stream_buffer", 1),
            ("drain_seconds", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise OptionError(f"{name} is {value}; it must be at least {least}")
        self.scheduling  # noqa: B018  its own limits are checked as it is made

    @property
    def scheduling(self) -> dict[str, int]:
        """What `Engine.scheduler` is to be given."""
        options = {
            "max_queue": self.max_queue,
            "prefill_rows": self.prefill_rows,
            "max_prefixes": self.max_prefixes,
        }
        SchedulerOptions(**options)
        return options
