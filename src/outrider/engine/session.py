"""A conversation whose cache outlives one request, so that the next turn reads only what is new."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.errors import OptionError
from outrider.targets.base import Target


class Session:
    """One sequence of a target, kept open between requests.

    A request that names a session reuses the cached tokens its prompt begins with and leaves its
    own behind. One request at a time may use it. Close it to free the memory.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._sequence: int | None = None
        self._tokens: list[int] = []
        self._is_busy = False

    @property
    def cached_tokens(self) -> tuple[int, ...]:
        """The tokens whose keys and values are held."""
        if self._sequence is None:
            return ()
        return tuple(self._tokens[: self._target.cached(self._sequence)])

    def acquire(self, target: Target, prompt_ids: Sequence[int], max_tokens: int) -> int:
        """Lend the sequence to a request, cropped to what its prompt shares with it."""
        if target is not self._target:
            raise OptionError("the session belongs to another model")
        if self._is_busy:
            raise OptionError("the session is in use by another request")
        if self._sequence is None:
            self._sequence = target.open(max_tokens)
        shared = 0
        # The last prompt token is always read again: its row is where the answer begins.
        for held, wanted in zip(self.cached_tokens, prompt_ids[:-1], strict=False):
            if held != wanted:
                break
            shared += 1
        target.crop(self._sequence, shared)
        self._is_busy = True
        return self._sequence

    def release(self, tokens: Sequence[int]) -> None:
        """Take the sequence back from a request that had committed `tokens`."""
        self._tokens = list(tokens)
        self._is_busy = False

    def close(self) -> None:
        """Free the cache; the session can be used again, from a cold start."""
        if self._is_busy:
            raise OptionError("the session is in use by another request")
        if self._sequence is not None:
            self._target.close(self._sequence)
        self._sequence = None
        self._tokens = []

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
