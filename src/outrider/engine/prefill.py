"""How much of which prompt is read in a round, so that no prompt keeps all others waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

LEAST_ROWS = 16
"""A piece of a prompt is no smaller, as every piece takes a pass of its own."""

MOST_SHARED_ROWS = 32
"""A prompt, or what is left of it, that is no longer is read in the pass that all share."""


def share_rows(unread: Sequence[int], most: int | None) -> list[int]:
    """Return how many rows each request has in a round, of the tokens it has not cached yet.

    A request with one such token decodes and always has its row. The others read their prompts,
    with `most` rows for all of them together, None for no limit. The one that came first has half
    of these for sure, so that it gets on; then come those that are shorter, so that they do not
    wait for it; what they leave is for the first, and what it leaves for the rest, the shortest
    before longer ones. `unread` is in the order they came.
    """
    if most is None:
        return list(unread)
    shares = [1 if rows == 1 else 0 for rows in unread]
    reading = [i for i, rows in enumerate(unread) if rows > 1]
    left = most
    for i, rows in _claims(reading, unread, max(LEAST_ROWS, most // 2)):
        share = min(shares[i] + min(rows, left), unread[i])
        if share == unread[i] or share >= LEAST_ROWS:
            left -= share - shares[i]
            shares[i] = share
    return shares


def _claims(reading: Sequence[int], unread: Sequence[int], half: int) -> Iterator[tuple[int, int]]:
    """Yield requests that read, and the rows they may have at most, in the order they get them."""
    if not reading:
        return
    first, *others = reading
    by_length = sorted(others, key=lambda i: unread[i])
    yield first, half
    yield from ((i, unread[i]) for i in by_length if unread[i] < unread[first])
    yield first, unread[first]
    yield from ((i, unread[i]) for i in by_length if unread[i] >= unread[first])
