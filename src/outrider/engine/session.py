"""A conversation whose cache outlives one request, so that the next turn reads only what is new."""

from __future__ import annotations

from outrider.engine.prefixes import Prefix
from outrider.engine.rereading import may_reuse_decoded
from outrider.errors import OptionError
from outrider.targets.base import Target
from outrider.types import TokenIds


class Session:
    """One sequence of a target, kept open between requests.

    A request that names a session reuses the cached tokens its prompt begins with and leaves its
    own behind. One request at a time may use it. Close it to free the memory.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._prefix: Prefix | None = None
        self._is_busy = False

    @property
    def cached_tokens(self) -> tuple[int, ...]:
        """The tokens whose keys and values are held."""
        return () if self._prefix is None else self._prefix.tokens

    @property
    def is_open(self) -> bool:
        """Whether a sequence of the target is held."""
        return self._prefix is not None

    def acquire(self, target: Target, prompt_ids: TokenIds, max_tokens: int) -> Prefix:
        """Lend the cache to a request, cropped to what its prompt shares with it."""
        if target is not self._target:
            raise OptionError("the session belongs to another model")
        if self._is_busy:
            raise OptionError("the session is in use by another request")
        if self._prefix is None:
            decoded_too = may_reuse_decoded(target)
            self._prefix = Prefix(target, max_tokens, decoded_too=decoded_too)
        self._prefix.lend(prompt_ids)
        self._is_busy = True
        return self._prefix

    def release(self) -> None:
        """Take the cache back from a request that has noted in it what it committed."""
        self._is_busy = False

    def close(self) -> None:
        """Free the cache; the session can be used again, from a cold start."""
        if self._is_busy:
            raise OptionError("the session is in use by another request")
        if self._prefix is not None:
            self._prefix.close()
        self._prefix = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
