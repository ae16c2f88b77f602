"""Caches that outlive their requests, for prompts that begin with the same tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outrider.engine.rereading import may_reuse_decoded
from outrider.targets.base import Target
from outrider.types import TokenIds

_LEAST_SHARED = 8  # tokens in common below which a cache is not worth taking


class Prefix:
    """A sequence of a target and the tokens in it, lent to one request after the other."""

    __slots__ = ("_decoded_too", "_num_read", "_target", "_tokens", "sequence")

    def __init__(self, target: Target, max_tokens: int, *, decoded_too: bool = True) -> None:
        """`decoded_too`: whether decoded tokens are as good as read ones (`may_reuse_decoded`)."""
        self.sequence = target.open(max_tokens)
        self._target = target
        self._decoded_too = decoded_too
        self._tokens: tuple[int, ...] = ()
        self._num_read = 0

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens whose keys and values are held."""
        return self._tokens[: self._target.cached(self.sequence)]

    def shared(self, prompt_ids: TokenIds) -> int:
        """Return how many tokens at the beginning of a prompt need not be read again.

        The last one always is: its row is where the answer begins.
        """
        held = self.tokens if self._decoded_too else self.tokens[: self._num_read]
        count = 0
        for ours, theirs in zip(held, prompt_ids[:-1], strict=False):
            if ours != theirs:
                break
            count += 1
        return count

    def lend(self, prompt_ids: TokenIds) -> None:
        """Keep what a prompt shares and forget the rest; the request goes on from there."""
        self._target.crop(self.sequence, self.shared(prompt_ids))
        self._tokens = ()

    def take_back(self, tokens: Sequence[int], num_read: int) -> None:
        """Take note of the tokens a request committed, the first `num_read` of them as a prompt.

        The cache may hold less of them; and what else it should hold is none of these.
        """
        self._tokens = tuple(tokens)
        self._num_read = num_read
        if self._target.cached(self.sequence) > len(self._tokens):
            self._target.crop(self.sequence, len(self._tokens))

    def close(self) -> None:
        """Free the sequence."""
        self._target.close(self.sequence)


class PrefixCache:
    """Idle caches of finished requests, at most so many, the one used last the last to go.

    What is held is exact, so a cache never changes what is said; it saves reading. A request takes
    a cache over whole: what others might still have shared of it is lost.
    """

    def __init__(self, target: Target, most: int) -> None:
        """Keep up to `most`; under invariant numerics a few passes are run to see what may be."""
        self._target = target
        self._most = most
        self._decoded_too = may_reuse_decoded(target) if most else True
        self._idle: list[Prefix] = []  # the one used last comes last

    def __len__(self) -> int:
        return len(self._idle)

    def __iter__(self) -> Iterator[Prefix]:
        return iter(self._idle)

    def take(self, prompt_ids: TokenIds) -> Prefix | None:
        """Return the idle cache that shares most with a prompt, None if none is worth taking.

        One of which less than half is shared stays for those who know more of it, unless it is the
        next to be dropped anyway.
        """
        best, most = None, _LEAST_SHARED - 1
        for place, prefix in enumerate(self._idle):
            shared = prefix.shared(prompt_ids)
            is_next = place == 0 and len(self._idle) == self._most
            if shared > most and (is_next or 2 * shared >= len(prefix.tokens)):
                best, most = prefix, shared
        if best is not None:
            self._idle.remove(best)
        return best

    def open(self, max_tokens: int) -> Prefix:
        """Return a new, empty cache, to be lent and put back like the others."""
        return Prefix(self._target, max_tokens, decoded_too=self._decoded_too)

    def put(self, prefix: Prefix) -> None:
        """Keep a cache for later, in the place of the one used longest ago if there are too many.

        One that holds nothing is freed.
        """
        if not prefix.tokens:
            prefix.close()
            return
        self._idle.append(prefix)
        if len(self._idle) > self._most:
            self.drop()

    def drop(self) -> bool:
        """Free the cache used longest ago; returns whether there was one."""
        if not self._idle:
            return False
        self._idle.pop(0).close()
        return True

    def clear(self) -> None:
        """Free all."""
        while self.drop():
            pass
