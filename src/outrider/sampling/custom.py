"""Processors the caller brings, in the form Transformers gives them: `(input_ids, scores)`.

They may keep state, so each sees one row at a time, only rows that are asked for, and the row's
full prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from outrider.errors import OptionError
from outrider.types import TokenIds

LogitsProcessor: TypeAlias = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class TailFilter:
    """A processor without state that runs last, after min_p, and only when sampling.

    Several rows may be given to it at once, without their prefixes.
    """

    processor: Callable[[Any, Tensor], Tensor]

    def __call__(self, input_ids: Tensor | None, scores: Tensor) -> Tensor:
        """Filter scores [R, V]."""
        return self.processor(input_ids, scores)


@dataclass(frozen=True, slots=True)
class PromptRelative:
    """A processor that must know how long the prompt is, built anew for each request."""

    build: Callable[[int], LogitsProcessor]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Refuse: only the processor that `build` returns can be called."""
        raise TypeError("build the processor for a prompt length first")


@dataclass(frozen=True, slots=True)
class NotFirst:
    """Ids that the output does not begin with.

    That takes no row by itself, as other processors here do: the pipeline has a step for it.
    """

    ids: tuple[int, ...]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Refuse: where the output begins is not seen from here."""
        raise TypeError("the pipeline bans these ids by itself")


@dataclass(frozen=True, slots=True)
class LimitRelative:
    """A processor that must know how many ids there can be, prompt included, built anew for each
    request.
    """

    build: Callable[[int], LogitsProcessor]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Refuse: only the processor that `build` returns can be called."""
        raise TypeError("build the processor for a limit first")


@dataclass(frozen=True, slots=True)
class Complete:
    """A processor that gives the very scores tokens are drawn from, temperature and tail included.

    The options of the tail are then for drafters alone, who had better draw as the target does.
    """

    processor: LogitsProcessor

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Process the scores [1, V] of one row."""
        return self.processor(input_ids, scores)


class CustomProcessors:
    """Runs a caller's processors on one row at a time, each with its full prefix."""

    def __init__(
        self,
        processors: Sequence[Any],
        prompt_ids: TokenIds,
        device: torch.device,
        *,
        max_new_tokens: int,
    ) -> None:
        ends = {PromptRelative: len(prompt_ids), LimitRelative: len(prompt_ids) + max_new_tokens}
        self._processors = [
            processor.build(ends[type(processor)]) if type(processor) in ends else processor
            for processor in processors
        ]
        self._ids = torch.empty(0, dtype=torch.int64, device=device)
        self._length = 0
        self.append(prompt_ids)

    def append(self, tokens: TokenIds) -> None:
        """Make tokens part of every row's prefix from now on."""
        length = self._length + len(tokens)
        if length > len(self._ids):
            grown = self._ids.new_empty(2 * length)
            grown[: self._length] = self._ids[: self._length]
            self._ids = grown
        self._ids[self._length : length] = torch.tensor(tuple(tokens), dtype=torch.int64)
        self._length = length

    def apply(self, scores: Tensor, paths: Sequence[tuple[int, ...]]) -> Tensor:
        """Return processed scores [R, V]; the rows are processed in order."""
        rows = [self._process(scores[i : i + 1], path) for i, path in enumerate(paths)]
        return torch.cat(rows)

    def _process(self, scores: Tensor, path: tuple[int, ...]) -> Tensor:
        # A copy, so that a processor that keeps or changes its input cannot reach ours.
        ids = torch.cat((self._ids[: self._length], self._ids.new_tensor(path))).unsqueeze(0)
        for processor in self._processors:
            processed = processor(ids, scores)
            if not isinstance(processed, Tensor) or processed.shape != scores.shape:
                found = tuple(getattr(processed, "shape", ())) or type(processed).__name__
                name = type(processor).__name__
                wanted = tuple(scores.shape)
                raise OptionError(f"logits_processors: {name} gave {found}: expected {wanted}")
            scores = processed.to(scores.dtype)
        return scores
