"""The rows of a call while they are decoded: each as fast as its drafts let it, taken in step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from types import TracebackType

import torch

from outrider.decoder import Decoder
from outrider.dropin.call import Call
from outrider.dropin.padded import PaddedRow
from outrider.dropin.processing import Record, RowProcessing
from outrider.engine.events import Emitted, Failed, Ticket
from outrider.engine.request import Request
from outrider.errors import OptionError


@dataclass(slots=True, eq=False)
class _Row:
    request: Request
    processing: RowProcessing
    ticket: Ticket
    ahead: deque[int] = field(default_factory=deque)
    """Tokens that were decoded and not taken yet."""
    taken: list[int] = field(default_factory=list)
    padded: PaddedRow | None = None
    """Where it goes on from once it has ended."""
    is_running: bool = True


class Rows:
    """Decodes the rows of a call together and gives them out token by token.

    A row may be decoded further than it is taken; what is never taken is dropped.
    """

    def __init__(self, decoder: Decoder, call: Call, seeds: Sequence[int]) -> None:
        """Raises OptionError or PromptError for rows that cannot be decoded; none is begun then."""
        self._call = call
        self._target = decoder.engine.target
        self._rows: list[_Row] = []
        built = [call.processing(row) for row in range(len(call.prompts))]
        requests = [
            _request(decoder, call, row, processing, seed)
            for row, (processing, seed) in enumerate(zip(built, seeds, strict=True))
        ]
        self._scheduler = decoder.engine.scheduler()
        for request, processing in zip(requests, built, strict=True):
            ticket = self._scheduler.submit(request)
            self._rows.append(_Row(request, processing, ticket))
        self._by_ticket = {row.ticket: row for row in self._rows}

    def __enter__(self) -> Rows:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with closing(self._scheduler):
            for row in self._rows:
                if row.padded is not None:
                    row.padded.close()

    def take(self, index: int) -> int:
        """Return the next token of a row that has not ended; raises what went wrong with it."""
        row = self._rows[index]
        while not row.ahead:
            assert row.is_running, "a row ended that its criteria let go on"
            self._step()
        token = row.ahead.popleft()
        row.taken.append(token)
        return token

    def end(self, index: int) -> None:
        """Decode a row no further: it has ended, and is padded from now on."""
        row = self._rows[index]
        if row.is_running:
            self._scheduler.cancel(row.ticket)

    def record(self, index: int, step: int) -> Record:
        """Return what a step of `generate` has of a row; behind its end, what it has of padding.

        Each step once, in order, after its token is taken.
        """
        row = self._rows[index]
        if step < len(row.taken):
            return row.processing.take(step)
        if row.padded is None:
            tokens = (*row.request.prompt_ids, *row.taken)
            most = len(row.request.prompt_ids) + self._call.max_new_tokens
            pad = self._call.pad_token_id
            row.padded = PaddedRow(self._target, tokens, pad, most)
        ids, logits = row.padded.next()
        return row.processing.process(torch.tensor([ids], device=logits.device), logits)

    def _step(self) -> None:
        """Let a round pass, and keep what it adds."""
        for event in self._scheduler.step():
            row = self._by_ticket[event.ticket]
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Emitted):
                row.ahead.extend(token.id for token in event.chunk.tokens)
                row.is_running = event.chunk.finish_reason is None
            else:
                row.is_running = False


def _request(
    decoder: Decoder, call: Call, row: int, processing: RowProcessing, seed: int
) -> Request:
    """Return the request for a row, checked: `generate` says when it ends, and wants no text."""
    params = replace(call.params(processing), seed=seed)
    (request,) = decoder.requests(call.prompts[row], params=params, name=f"row {row}")
    _require_positions(request, decoder.engine.target.max_positions)
    return replace(request, eos_token_ids=call.eos_token_ids, tokenizer=None)


def _require_positions(request: Request, room: int) -> None:
    """Refuse a limit that the model has no positions for, rather than end before it."""
    length = len(request.prompt_ids)
    if length + request.params.max_new_tokens > room:
        raise OptionError(
            f"generate: max_new_tokens is {request.params.max_new_tokens}: the model holds {room} "
            f"tokens and the prompt of {request.name} has {length}, so expected at most "
            f"{room - length}"
        )
