"""The steps that change scores according to what a row's prefix holds.

Each works in place on scores of its own [R, V], all rows at once, each row with its own prefix:
everything appended so far and then `paths[r]`. None knows models, rounds or randomness.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from outrider.types import TokenIds

Paths = Sequence[tuple[int, ...]]


class Processor(Protocol):
    """One step of the pipeline."""

    def append(self, tokens: TokenIds) -> None:
        """Make tokens part of every row's prefix from now on."""
        ...

    def apply(self, scores: Tensor, paths: Paths) -> None:
        """Change scores [R, V] in place, row r for the prefix that ends in `paths[r]`."""
        ...


class LogitBias:
    """Adds a constant to some tokens' scores (-inf bans them)."""

    def __init__(self, bias: Mapping[int, float], device: torch.device) -> None:
        self._ids = torch.tensor(list(bias), dtype=torch.int64, device=device)
        self._amounts = torch.tensor(list(bias.values()), dtype=torch.float64, device=device)

    def append(self, tokens: TokenIds) -> None:
        """Do nothing: a bias does not look at the prefix."""

    def apply(self, scores: Tensor, paths: Paths) -> None:
        """Add the bias."""
        amounts = self._amounts.to(scores.dtype).expand(len(paths), -1)
        scores.index_add_(1, self._ids, amounts)


class RepetitionPenalty:
    """Makes tokens seen in prompt or output less likely (Keskar et al. 2019, section 4.1)."""

    def __init__(
        self, penalty: float, prompt_ids: TokenIds, vocab_size: int, device: torch.device
    ) -> None:
        self._penalty = penalty
        self._vocab_size = vocab_size
        self._seen: set[int] = set()
        self._ids = torch.empty(0, dtype=torch.int64, device=device)
        self.append(prompt_ids)

    def append(self, tokens: TokenIds) -> None:
        """Mark tokens as seen; ids the target cannot emit are of no concern."""
        new = {token for token in tokens if token < self._vocab_size} - self._seen
        if new:
            self._seen |= new
            self._ids = torch.cat((self._ids, self._ids.new_tensor(list(new))))

    def apply(self, scores: Tensor, paths: Paths) -> None:
        """Divide positive scores of seen tokens by the penalty, multiply negative ones."""
        scores.index_copy_(1, self._ids, self._penalised(scores.index_select(1, self._ids)))
        drafted = [tuple(set(path) - self._seen) for path in paths]
        if any(drafted):
            cells = _cells(drafted, scores.device)
            scores[cells] = self._penalised(scores[cells])

    def _penalised(self, scores: Tensor) -> Tensor:
        return torch.where(scores < 0, scores * self._penalty, scores / self._penalty)


class OutputPenalty:
    """OpenAI's penalties: for tokens the output holds, and for how often it does."""

    def __init__(
        self, presence: float, frequency: float, vocab_size: int, device: torch.device
    ) -> None:
        self._presence = presence
        self._frequency = frequency
        self._counts = torch.zeros(vocab_size, device=device)

    def append(self, tokens: TokenIds) -> None:
        """Count output tokens."""
        if tokens:
            _count(self._counts, (torch.tensor(tokens, device=self._counts.device),))

    def apply(self, scores: Tensor, paths: Paths) -> None:
        """Subtract `frequency * count + presence * (count > 0)`."""
        counts = self._counts.expand(len(paths), -1)
        if any(paths):
            counts = counts.clone()
            _count(counts, _cells(paths, counts.device))
        if self._frequency:
            scores.sub_(counts.to(scores.dtype) * self._frequency)
        if self._presence:
            scores.sub_((counts > 0).to(scores.dtype) * self._presence)


class BadWords:
    """Bans the last token of each word where the prefix ends in the tokens before it."""

    def __init__(
        self, words: Sequence[tuple[int, ...]], prompt_ids: TokenIds, device: torch.device
    ) -> None:
        single = sorted({word[0] for word in words if len(word) == 1})
        self._single = torch.tensor(single, dtype=torch.int64, device=device)
        self._by_last_before: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for word in words:
            if len(word) > 1:
                self._by_last_before[word[-2]].append(word)
        self._window = max(map(len, words)) - 1
        self._tail: tuple[int, ...] = ()
        self.append(prompt_ids)

    def append(self, tokens: TokenIds) -> None:
        """Remember the prefix as far back as the longest word looks."""
        self._tail = self._ending(tuple(tokens))

    def apply(self, scores: Tensor, paths: Paths) -> None:
        """Set banned tokens to -inf."""
        scores.index_fill_(1, self._single, -math.inf)
        banned = [(row, token) for row, path in enumerate(paths) for token in self._banned(path)]
        if banned:
            rows, tokens = torch.tensor(banned, device=scores.device).unbind(1)
            scores[rows, tokens] = -math.inf

    def _ending(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        return (self._tail + tokens)[-self._window :] if self._window else ()

    def _banned(self, path: tuple[int, ...]) -> list[int]:
        ending = self._ending(path)
        words = self._by_last_before.get(ending[-1], ()) if ending else ()
        return [word[-1] for word in words if ending[1 - len(word) :] == word[:-1]]


class MinNewTokens:
    """Bans tokens, as a rule those that would end the request, before it is long enough."""

    def __init__(self, minimum: int, ending_ids: TokenIds, device: torch.device) -> None:
        self._minimum = minimum
        self._ending_ids = torch.tensor(ending_ids, dtype=torch.int64, device=device)
        self._num_new = 0

    def append(self, tokens: TokenIds) -> None:
        """Count output tokens."""
        self._num_new += len(tokens)

    def apply(self, scores: Tensor, paths: Paths) -> None:
        """Set ending tokens to -inf in the rows that are too early."""
        early = [row for row, path in enumerate(paths) if self._num_new + len(path) < self._minimum]
        if early:
            rows = torch.tensor(early, device=scores.device)
            scores[rows.unsqueeze(1), self._ending_ids] = -math.inf


def _cells(paths: Paths, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the (row, token) indices of every token in the paths."""
    cells = [(row, token) for row, path in enumerate(paths) for token in path]
    rows, tokens = torch.tensor(cells, device=device).unbind(1)
    return rows, tokens


def _count(counts: Tensor, cells: tuple[Tensor, ...]) -> None:
    counts.index_put_(cells, torch.ones((), device=counts.device), accumulate=True)
