"""A bounded store of past outputs that requests may copy from."""

from __future__ import annotations

from outrider.drafters.automaton import END, SuffixAutomaton
from outrider.types import TokenIds


class OutputStore:
    """Past outputs, first in first out, in two generations of suffix automata.

    An automaton cannot forget, so the store forgets half at a time: when the young generation is
    full it becomes the old one, and the old one before it is dropped. At most `max_tokens` output
    tokens are held at any time.
    """

    __slots__ = ("_capacity", "_num_young_tokens", "generations")

    def __init__(self, max_tokens: int) -> None:
        self._capacity = max_tokens // 2
        self._num_young_tokens = 0
        self.generations: tuple[SuffixAutomaton, ...] = (SuffixAutomaton(),)
        """The young generation, then the old one if there is one; they only ever grow."""

    def add(self, output: TokenIds) -> None:
        """Take in a finished output; of one longer than a generation, only the last tokens."""
        tokens = output[-self._capacity :]
        if not tokens:
            return
        if self._num_young_tokens + len(tokens) > self._capacity:
            self.generations = (SuffixAutomaton(), self.generations[0])
            self._num_young_tokens = 0
        young = self.generations[0]
        for token in tokens:
            young.append(token)
        young.append(END)
        self._num_young_tokens += len(tokens)
