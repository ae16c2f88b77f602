"""A suffix automaton over token ids: every substring of a text, indexed while the text grows.

Blumer et al. 1985. A state stands for all substrings that end at the same places in the text; it
keeps how often they occur and which token followed most often. Appending costs amortised constant
time, and a text of n tokens needs at most 2n states.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

START = 0
"""The state of the empty string."""

END = -2
"""Stands in a text for the end of one of several texts in a row, where no draft goes on."""

NONE = -1
"""No such state, or no such token."""

# Counts are kept up for this many of the longest suffixes at each token. Natural text has fewer
# suffixes that differ in where they occur; text that repeats itself has very many (one more for
# each repetition), and there the short ones say nothing the long ones do not.
_COUNTED_SUFFIXES = 16

# Where more tokens than this have followed besides the favourite, none of them is likely, and a
# text has places where ever more do.
_MOST_OTHERS = 8


class SuffixAutomaton:
    """Substrings of one growing text, with their counts and favourite continuations.

    Each state's favourite edge (the token that followed most often, the latest of equals) lies in
    flat arrays; only a state with several continuations owns a dict, for the others.
    """

    __slots__ = ("_count", "_edges", "_last", "_length", "_link", "_target", "_token")

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._length = array("i", [0])  # tokens in the state's longest string
        self._link = array("i", [NONE])  # state of its longest suffix that occurs elsewhere too
        self._count = array("i", [0])  # occurrences
        self._token = array("q", [NONE])  # favourite edge: its token ...
        self._target = array("i", [NONE])  # ... and where it leads
        self._edges: dict[int, dict[int, int]] = {}  # all other edges
        self._last = START
        for token in tokens:
            self.append(token)

    def __len__(self) -> int:
        """Return the number of tokens in the text."""
        return self._length[self._last]

    @property
    def num_states(self) -> int:
        """How many states the text needs."""
        return len(self._length)

    def append(self, token: int) -> None:
        """Extend the text by one token id, or by `END`."""
        link, last = self._link, self._last
        new = self._new_state(self._length[last] + 1)
        self._token[last], self._target[last] = token, new  # nothing followed the whole text yet
        state = link[last]
        while state != NONE and self.follow(state, token) == NONE:
            self._add_edge(state, token, new)
            state = link[state]
        if state == NONE:
            link[new] = START
        else:
            target = self.follow(state, token)
            if self._length[target] != self._length[state] + 1:
                target = self._split(target, state, token)
            link[new] = target
            self._count_suffixes(state, token)
        self._last = new

    def follow(self, state: int, token: int) -> int:
        """Return the state of a string of `state` with `token` after it, or -1 if none occurs."""
        if self._token[state] == token:
            return self._target[state]
        edges = self._edges.get(state)
        return NONE if edges is None else edges.get(token, NONE)

    def favourite(self, state: int) -> tuple[int, int]:
        """Return the token that followed most often, and the state it leads to (-1, -1: none)."""
        return self._token[state], self._target[state]

    def count(self, state: int) -> int:
        """Return how often the strings of `state` occur.

        Exact unless the text repeats itself so much that a suffix of it occurs among more than
        `_COUNTED_SUFFIXES` longer ones; then it may lag behind.
        """
        return self._count[state]

    def share(self, state: int) -> float:
        """Return the share of the favourite continuation; 1 if there is no other.

        An occurrence at the end of the text, with no continuation yet, counts as none of them.
        """
        if state not in self._edges:
            return 1.0
        return min(1.0, self._count[self._target[state]] / self._count[state])

    def is_branching(self, state: int) -> bool:
        """Whether more than one token has followed the strings of `state`."""
        return state in self._edges

    def others(self, state: int) -> list[tuple[int, int, float]]:
        """Return the continuations besides the favourite: token, state it leads to, and share.

        None where there are more than a few.
        """
        edges = self._edges.get(state)
        if edges is None or len(edges) > _MOST_OTHERS:
            return []
        count, all_of_them = self._count, self._count[state]
        return [
            (token, target, min(1.0, count[target] / all_of_them))
            for token, target in edges.items()
        ]

    def repeated_suffix(self) -> tuple[int, int]:
        """Return the longest suffix of the text that occurred before: its state and its length."""
        return (START, 0) if self._last == START else self.shorten(self._last)

    def shorten(self, state: int) -> tuple[int, int]:
        """Return the longest suffix of `state`'s strings with more occurrences: state, length."""
        shorter = self._link[state]
        return shorter, self._length[shorter]

    def continued(self, state: int, matched: int) -> tuple[int, int]:
        """Return the longest suffix of the last `matched` tokens that something has followed.

        It is a shorter one at the end of the text, whose end then occurred before.
        """
        while matched and self._token[state] == NONE:
            state, matched = self.shorten(state)
        return state, matched

    def advance(self, state: int, matched: int, token: int) -> tuple[int, int]:
        """Match a token after the `matched` last tokens of some other text, found at `state`.

        Returns the state and length of the longest suffix of that other text that occurs here.
        """
        state = self.settle(state, matched)
        while (target := self.follow(state, token)) == NONE:
            if state == START:
                return START, 0
            state, matched = self.shorten(state)
        return target, matched + 1

    def settle(self, state: int, matched: int) -> int:
        """Return the state that now holds the last `matched` tokens of `state`'s strings.

        A state found earlier may since have been split, leaving it the longer strings only.
        """
        while state != START and matched <= self._length[self._link[state]]:
            state = self._link[state]
        return state

    def _new_state(self, length: int) -> int:
        state = len(self._length)
        self._length.append(length)
        self._link.append(START)
        self._count.append(1)
        self._token.append(NONE)
        self._target.append(NONE)
        return state

    def _add_edge(self, state: int, token: int, target: int) -> None:
        """Let `token` follow `state` for the first time; it is favoured over another such."""
        edges = self._edges.setdefault(state, {})
        if self._count[self._target[state]] == 1:
            edges[self._token[state]] = self._target[state]
            self._token[state], self._target[state] = token, target
        else:
            edges[token] = target

    def _split(self, old: int, state: int, token: int) -> int:
        """Part `old` in two: its strings as short as `state`'s plus `token` now occur more often.

        Returns the new state, which takes the short ones and starts as a copy of `old`.
        """
        new = self._new_state(self._length[state] + 1)
        self._count[new] = self._count[old]
        self._token[new], self._target[new] = self._token[old], self._target[old]
        if old in self._edges:
            self._edges[new] = self._edges[old].copy()
        self._link[new] = self._link[old]
        self._link[old] = new
        while state != NONE and self.follow(state, token) == old:
            if self._token[state] == token:
                self._target[state] = new
            else:
                self._edges[state][token] = new
            state = self._link[state]
        return new

    def _count_suffixes(self, state: int, token: int) -> None:
        """Count the continuation of `state` and its suffixes by `token` once more.

        The token becomes the favourite wherever none has followed more often.
        """
        count, link, favourite, target = self._count, self._link, self._token, self._target
        counted = NONE
        for _ in range(_COUNTED_SUFFIXES):
            if favourite[state] == token:
                reached = target[state]
                if reached != counted:  # neighbouring suffixes often lead into one state
                    count[reached] += 1
                    counted = reached
            else:
                edges = self._edges[state]
                reached = edges[token]
                if reached != counted:
                    count[reached] += 1
                    counted = reached
                if count[reached] >= count[target[state]]:
                    del edges[token]
                    edges[favourite[state]] = target[state]
                    favourite[state], target[state] = token, reached
            state = link[state]
            if state == NONE:
                break
