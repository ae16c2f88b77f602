"""One request as it is written: its chunks, and at their end its result."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.engine.result import Collector, Result
from outrider.types import Chunk


class Stream:
    """An iterator over the chunks of one request; `result` is there once it is exhausted."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self._run = engine.run([request])
        self._collector = Collector(request.prompt_ids, request.seed)
        self._result: Result | None = None

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        _, chunk, state = next(self._run)
        self._collector.add(chunk)
        if state.finish_reason is not None:
            self._result = self._collector.result(state.finish_reason, state.stats)
        return chunk

    @property
    def result(self) -> Result:
        """The whole answer; only after the last chunk."""
        if self._result is None:
            raise RuntimeError("the stream has not ended: take all its chunks first")
        return self._result

    def close(self) -> None:
        """Stop early: the work ends and what it held is freed."""
        self._run.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
