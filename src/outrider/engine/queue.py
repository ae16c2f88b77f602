"""Who is next: first come, first served, and in turns where several keys have items waiting."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """A line of items for each key; the lines are served in turns, one item a turn.

    With one key it is a plain queue. A key that comes back after its line was empty goes behind
    the others, so nobody gains by coming in small portions.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[Hashable, deque[Item]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def __iter__(self) -> Iterator[Item]:
        for line in self._lines.values():
            yield from line

    def push(self, key: Hashable, item: Item) -> None:
        """Put an item at the end of the line of a key."""
        self._lines.setdefault(key, deque()).append(item)

    def peek(self) -> Item | None:
        """Return the next item and leave it where it is; None if there is none."""
        return next(iter(self), None)

    def pop(self) -> Item:
        """Take the next item; the line it stood in has its next turn after all others."""
        key, line = next(iter(self._lines.items()))
        item = line.popleft()
        if line:
            self._lines.move_to_end(key)
        else:
            del self._lines[key]
        return item

    def remove(self, key: Hashable, item: Item) -> bool:
        """Take an item out of turn; returns whether it was there."""
        line = self._lines.get(key)
        if line is None or item not in line:
            return False
        line.remove(item)
        if not line:
            del self._lines[key]
        return True
