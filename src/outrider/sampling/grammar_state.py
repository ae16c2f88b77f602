"""Where one request stands in its grammar, and which tokens may come next, also after a draft."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.trees.layout import row_paths
from outrider.types import DraftTree, TokenIds

if TYPE_CHECKING:
    from llguidance import LLMatcher

Path: TypeAlias = tuple[int, ...]
Mask: TypeAlias = NDArray[np.uint8]
"""One bit a token, the lowest first; longer than the vocabulary rather than shorter."""
NO_TEXT = "no text in this vocabulary matches it"
_LONGEST_REASON = 300


class _Standing(Enum):
    """What the grammar says of a text."""

    OPEN = auto()
    ENDED = auto()
    REFUSED = auto()
    UNKNOWN = auto()
    """The matcher gave up: what follows is too much for it."""


class GrammarState:
    """The grammar of one request, which follows what is appended and looks ahead along drafts.

    A path is a draft after all that was appended. What is allowed after it depends on the tokens
    alone, not on which other paths were looked at before or in which order. An end-of-text token
    is allowed where the text may end, and after it nothing else.
    """

    def __init__(
        self,
        new_matcher: Callable[[], LLMatcher],
        *,
        num_ids: int,
        ending_ids: Iterable[int],
        own_ending_ids: Iterable[int],
        vocab_size: int,
    ) -> None:
        """`num_ids` is the matcher's vocabulary and `own_ending_ids` are what it takes to end a
        text; `ending_ids` are the request's, and `vocab_size` is the target's.
        """
        self._new_matcher = new_matcher
        self._matcher = new_matcher()
        self._num_ids = num_ids
        self._vocab_size = vocab_size
        self._num_bytes = 4 * -(-num_ids // 32)  # what the matcher fills, to the byte
        self._width = max(self._num_bytes, -(-vocab_size // 8))
        self._ending_ids = frozenset(ending_ids)
        # The matcher never sees the end of a text: it is the request's own, and may be of several.
        self._no_text = self._ending_ids | frozenset(own_ending_ids)
        self._endings = self._bits(self._ending_ids)
        self._text_bits = ~self._bits(self._no_text)
        self._everything = np.full(self._width, 255, dtype=np.uint8)
        self._appended: list[int] = []
        self._ahead: Path = ()  # what the matcher has read beyond that
        self._has_ended = False
        self._is_lost = False
        self._masks: dict[Path, Mask | None] = {}
        self._fault = ""

    def append(self, tokens: TokenIds) -> None:
        """Make emitted tokens part of every path's prefix from now on."""
        path = tuple(tokens)
        standing = self._reach(path)
        self._has_ended = standing is _Standing.ENDED
        self._is_lost |= standing in (_Standing.REFUSED, _Standing.UNKNOWN)
        self._appended.extend(self._ahead)
        self._ahead = ()
        # What was looked up below an accepted draft still holds.
        self._masks = {
            key[len(path) :]: mask for key, mask in self._masks.items() if key[: len(path)] == path
        }

    def mask(self, path: Path) -> Mask | None:
        """Return the tokens allowed after a path; None if the path itself is not allowed."""
        if path not in self._masks:
            self._masks[path] = self._look_up(path)
        return self._masks[path]

    def apply(self, scores: Tensor, paths: Sequence[Path]) -> None:
        """Set refused tokens to -inf, in row r of scores [R, V] those after `paths[r]`.

        What is no number stays so, even for a refused token: it tells of a fault.
        """
        torch.minimum(scores, self.limits(paths, scores.device), out=scores)

    def limits(self, paths: Sequence[Path], device: torch.device) -> Tensor:
        """Return the highest score each token may have after each path [R, V]: inf or -inf.

        A path that is refused itself cannot be reached, so nothing is said of what follows it.
        """
        masks = [self.mask(path) for path in paths]
        packed = np.stack([self._everything if mask is None else mask for mask in masks])
        return limits(packed, self._vocab_size, device)

    def is_over(self, path: TokenIds) -> bool:
        """Whether a path ends the text."""
        return self._reach(tuple(path)) is _Standing.ENDED

    def reachable(self, tree: DraftTree) -> list[bool]:
        """Return for each node of a draft whether the grammar allows the path that leads to it."""
        return [self._reach(path) is not _Standing.REFUSED for path in row_paths(tree)[1:]]

    def allowed(self, path: TokenIds = ()) -> Tensor:
        """Return the ids [n] allowed after a path, in order: none after one that is refused."""
        mask = self.mask(tuple(path))
        bits = np.zeros(0, np.uint8) if mask is None else np.unpackbits(mask, bitorder="little")
        return torch.from_numpy(np.flatnonzero(bits[: self._vocab_size]))

    def forced(self, limit: int, path: TokenIds = ()) -> list[int]:
        """Return at most `limit` tokens that come after a path whatever the target says.

        The end of the text is not among them.
        """
        start, found = tuple(path), list[int]()
        while len(found) < limit and self._reach((*start, *found)) is _Standing.OPEN:
            following = self._matcher.compute_ff_tokens() or self._only((*start, *found))
            if not following:
                break
            found.extend(following)
        # A text that the target has no tokens for is a dead end, not a draft.
        return list(takewhile(lambda token: token < self._vocab_size, found[:limit]))

    def dead_end(self, path: Path) -> str:
        """Return why no token is left to choose after a path."""
        mask = self.mask(path)
        if mask is None or mask.any():
            return "the other options ban every token that the grammar allows"
        return f"the grammar allows no token: {self._fault or NO_TEXT}"

    def _only(self, path: Path) -> list[int]:
        """Return the one token that may follow a path, none if it ends the text."""
        mask = self.mask(path)
        if mask is None or np.count_nonzero(mask) != 1:
            return []
        tokens = np.flatnonzero(np.unpackbits(mask, bitorder="little")).tolist()
        return [token for token in tokens if len(tokens) == 1 and token not in self._ending_ids]

    def _look_up(self, path: Path) -> Mask | None:
        mask = np.zeros(self._width, dtype=np.uint8)
        match self._reach(path):
            case _Standing.ENDED:
                return self._endings
            case _Standing.REFUSED:
                return None
            case _Standing.UNKNOWN:
                return mask
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, self._num_bytes)
        if self._matcher.is_error():
            self._restart()
            mask[:] = 0
            return mask
        mask &= self._text_bits
        if self._matcher.is_accepting():
            mask |= self._endings
        return mask

    def _reach(self, path: Path) -> _Standing:
        """Lead the matcher to the end of a path, or as far as the grammar allows it."""
        if self._is_lost:
            return _Standing.UNKNOWN
        text = () if self._has_ended else tuple(takewhile(self._is_no_ending, path))
        rest = path[len(text) :]
        is_end = not any(map(self._is_no_ending, rest))
        if not self._has_ended:
            standing = self._read(text)
            if standing is not _Standing.OPEN or not rest:
                return standing
            is_end &= self._matcher.is_accepting()
        return _Standing.ENDED if is_end else _Standing.REFUSED

    def _read(self, text: Path) -> _Standing:
        """Let the matcher go back to where two texts part, and read on as far as it can."""
        shared = _shared(self._ahead, text)
        if shared < len(self._ahead):
            self._go_back(len(self._ahead) - shared)
        known = list(takewhile(self._is_text, text[shared:]))
        count = self._matcher.try_consume_tokens(known) if known else 0
        self._ahead = text[: shared + count]
        if self._matcher.is_error():
            self._restart()
            return _Standing.UNKNOWN
        return _Standing.OPEN if len(self._ahead) == len(text) else _Standing.REFUSED

    def _go_back(self, count: int) -> None:
        """Let the matcher unread so many tokens, and forget what it makes of them.

        It keeps the last mask it worked out, and knows it by the number of lexemes read and what it
        has of the next; after going back, other text may have as many. So it works out another
        before it reads on. Where bytes are forced it keeps none, which calls for a place before.
        """
        self._matcher.rollback(count)
        self._ahead = self._ahead[:-count]
        read = (*self._appended, *self._ahead)
        kept = len(read)
        while kept and self._matcher.compute_ff_bytes():
            self._matcher.rollback(1)
            kept -= 1
        if kept:
            self._matcher.compute_bitmask()
        else:
            self._matcher = self._new_matcher()
        self._matcher.consume_tokens(list(read[kept:]))

    def _restart(self) -> None:
        """Replace a matcher that has given up, which it does for good."""
        self._fault = fault_of(self._matcher)
        self._matcher = self._new_matcher()
        self._matcher.try_consume_tokens(self._appended)
        self._ahead = ()

    def _is_no_ending(self, token: int) -> bool:
        return token not in self._ending_ids

    def _is_text(self, token: int) -> bool:
        return 0 <= token < self._num_ids and token not in self._no_text

    def _bits(self, ids: Iterable[int]) -> Mask:
        mask = np.zeros(self._width, dtype=np.uint8)
        for token in ids:
            if token < 8 * self._width:
                mask[token // 8] |= 1 << token % 8
        return mask


def fault_of(matcher: LLMatcher) -> str:
    """Return why a matcher has given up, in one line; "" if it has not."""
    if matcher.is_stopped() and not (matcher.is_error() or matcher.is_accepting()):
        return NO_TEXT
    reason = one_line(matcher.get_error())
    return NO_TEXT if reason == "NoExtensionBias" else reason


def one_line(reason: str) -> str:
    """Return a reason without its line breaks, and without what it goes on to show of a state."""
    line = " ".join(reason.split("<state>")[0].split())
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}..."


def _shared(one: Path, other: Path) -> int:
    """Return how many tokens two paths have in common from their beginning."""
    shared = 0
    for ours, theirs in zip(one, other, strict=False):
        if ours != theirs:
            break
        shared += 1
    return shared


# For each byte of a mask the limits of its eight tokens. Looking them up and taking the minimum is
# ten times as fast as unpacking booleans and filling in where they say so.
_LIMITS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"),
    np.float32(math.inf),
    np.float32(-math.inf),
)


def limits(masks: Mask, vocab_size: int, device: torch.device) -> Tensor:
    """Return packed masks [R, W] as float32 [R, V] on a device: inf where a bit is set, or -inf."""
    if device.type == "cpu":
        found = np.take(_LIMITS, masks, axis=0).reshape(len(masks), -1)
        return torch.from_numpy(found)[:, :vocab_size]
    return _limits_on_device(torch.from_numpy(masks).to(device), vocab_size)


def _limits_on_device(masks: Tensor, vocab_size: int) -> Tensor:
    places = torch.arange(8, dtype=torch.uint8, device=masks.device)
    bits = masks.unsqueeze(-1).bitwise_right_shift(places).bitwise_and_(1)
    inf = torch.tensor(math.inf, device=masks.device)
    return torch.where(bits.flatten(1)[:, :vocab_size].bool(), inf, -inf)
