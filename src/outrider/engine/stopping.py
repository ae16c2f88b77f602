"""When a request ends, and which text may be shown before that: judged one token at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.engine.detokenize import Detokenizer
from outrider.errors import OptionError
from outrider.sampling.params import SamplingParams
from outrider.types import FinishReason, TokenIds

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class StopDecision:
    """What one token made of the request: text now safe to show, and whether it is the last."""

    text: str
    finish_reason: FinishReason | None = None


class Stopper:
    """Judges each emitted token of one request, in order, however the rounds cut them up.

    The token that ends the request is its last id. An end-of-text or stop id has no text; a stop
    string is cut from the text, wherever in its tokens it began or ended. Of several stop strings
    the first to be complete counts, the longest if they end together. A stop beats the length
    limit when one token meets both. Text that could still grow into a stop string is held back.
    """

    def __init__(
        self,
        params: SamplingParams,
        eos_token_ids: Iterable[int] = (),
        *,
        prompt_ids: TokenIds,
        max_new_tokens: int,
        detokenizer: Detokenizer | None = None,
    ) -> None:
        """Watch a request that may emit `max_new_tokens`: its own limit, or the room there is.

        Raises OptionError if there are stop strings but no detokenizer to find them with.
        """
        if params.stop and detokenizer is None:
            raise OptionError(f"stop={params.stop!r} needs a tokenizer, and the model has none")
        self._detokenizer = detokenizer
        self._stop_ids = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            self._stop_ids |= frozenset(eos_token_ids)
        self._special_stops, self._scanner = _stop_strings(params.stop, detokenizer)
        self._min_new_tokens = params.min_new_tokens
        self._max_new_tokens = max_new_tokens
        self._criteria = (
            _Criteria(params.stopping_criteria, prompt_ids, max_new_tokens)
            if params.stopping_criteria
            else None
        )
        self._num_tokens = 0
        self._has_ended = False

    def is_final(self, token_id: int) -> bool:
        """Whether this token ends a request by itself, whatever stands before it."""
        return token_id in self._stop_ids or token_id in self._special_stops

    def push(self, token_id: int) -> StopDecision:
        """Judge the next emitted token; not to be called again once a reason is given."""
        assert not self._has_ended, "the request has ended"
        may_stop = self._num_tokens >= self._min_new_tokens
        self._num_tokens += 1
        is_stopped = self._criteria is not None and self._criteria.push(token_id)
        text = ""
        if token_id in self._stop_ids or (may_stop and token_id in self._special_stops):
            is_stopped = True
        elif self._detokenizer is not None:
            text, is_cut = self._scanner.push(self._detokenizer.push(token_id), may_stop=may_stop)
            if is_cut:
                return self._end(text, "stop")
        if is_stopped:
            return self._end(text + self._scanner.release(), "stop")
        if self._num_tokens == self._max_new_tokens:
            return self._end(text + self._scanner.release(), "length")
        return StopDecision(text)

    def _end(self, text: str, reason: FinishReason) -> StopDecision:
        self._has_ended = True
        return StopDecision(text, reason)


class _StopScanner:
    """Finds the first stop string to be complete, keeping only text that may be part of one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, piece: str, *, may_stop: bool) -> tuple[str, bool]:
        """Return text that is safe to show, and whether it was cut at a stop string."""
        buffer = self._held + piece
        if may_stop and (start := self._find(buffer)) is not None:
            self._held = ""
            return buffer[:start], True
        safe = min((_safe_length(buffer, stop) for stop in self._stops), default=len(buffer))
        self._held = buffer[safe:]
        return buffer[:safe], False

    def release(self) -> str:
        """Give out what was held back, once no more text can follow."""
        held, self._held = self._held, ""
        return held

    def _find(self, buffer: str) -> int | None:
        # A stop string counts where it ends: in the new piece, as the held text was judged before.
        found = []
        for stop in self._stops:
            start = buffer.find(stop, max(0, len(self._held) - len(stop) + 1))
            if start >= 0:
                found.append((start + len(stop), start))
        return min(found)[1] if found else None


def _safe_length(buffer: str, stop: str) -> int:
    """Return how much of the buffer stands before the first tail that may grow into `stop`."""
    start = buffer.find(stop[0], max(0, len(buffer) - len(stop) + 1))
    while start >= 0 and not stop.startswith(buffer[start:]):
        start = buffer.find(stop[0], start + 1)
    return len(buffer) if start < 0 else start


def _stop_strings(
    stops: tuple[str, ...], detokenizer: Detokenizer | None
) -> tuple[frozenset[int], _StopScanner]:
    # Special tokens have no text, so a stop string that names one is looked for by its id.
    special: set[int] = set()
    plain: list[str] = []
    for stop in stops:
        token_id = None if detokenizer is None else detokenizer.special_id(stop)
        if token_id is None:
            plain.append(stop)
        else:
            special.add(token_id)
    return frozenset(special), _StopScanner(tuple(plain))


class _Criteria:
    """Custom criteria, each asked once a token with all the ids so far."""

    def __init__(
        self, criteria: tuple[Callable[..., Any], ...], prompt_ids: TokenIds, limit: int
    ) -> None:
        import torch

        self._criteria = criteria
        self._length = len(prompt_ids)
        self._ids: Tensor = torch.empty(1, self._length + limit, dtype=torch.long)
        self._ids[0, : self._length] = torch.tensor(prompt_ids, dtype=torch.long)

    def push(self, token_id: int) -> bool:
        self._ids[0, self._length] = token_id
        self._length += 1
        seen = self._ids[:, : self._length]
        # Every one is asked, even after a yes: some count their calls.
        return any([bool(criterion(seen, None)) for criterion in self._criteria])
