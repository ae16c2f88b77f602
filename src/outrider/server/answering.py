"""The way of a request for text: read, checked, submitted, answered whole or as a stream."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing

from fastapi import Request
from starlette.responses import Response

from outrider.server.answers import Answer, add_all
from outrider.server.bodies import Generation, parse
from outrider.server.errors import ApiError
from outrider.server.feeds import Feed
from outrider.server.http import DONE, EventStream, encoded, event, read_body, while_connected
from outrider.server.jobs import Job
from outrider.server.objects import Objects
from outrider.server.record import Record, record_of
from outrider.server.service import Service
from outrider.server.token_texts import TokenTexts
from outrider.server.usage import lossy_field, usage

_LOGGER = logging.getLogger("outrider.server")


class Answering:
    """Answers requests of one endpoint."""

    def __init__(
        self, service: Service, body_kind: type[Generation], objects_kind: type[Objects]
    ) -> None:
        self.body_kind = body_kind
        self._service = service
        self._objects_kind = objects_kind
        self._texts: TokenTexts | None = None

    async def answer(self, request: Request, client: str) -> Response:
        """Answer a request of someone who has leave to send it; raises ApiError."""
        self._service.require_ready()
        settings, record = self._service.settings, record_of(request.scope)
        raw = await read_body(
            request, most_bytes=settings.max_body_bytes, seconds=settings.body_seconds
        )
        body = parse(raw, self.body_kind)
        if body.model != settings.model:
            message = f"there is no model {body.model!r} here, only {settings.model!r}"
            raise ApiError(404, message, param="model", code="model_not_found")
        if settings.log_prompts:
            record.facts["body"] = raw.decode()
        # Long texts take a while to encode, and grammars to compile: others are served meanwhile.
        job = await asyncio.to_thread(
            self._service.preparer.prepare,
            body,
            request_id=record.request_id,
            client=(client, body.client),
        )
        objects = self._objects_kind(
            job, self._token_texts(job), name=record.request_id, created=int(time.time())
        )
        feed = self._service.submit(job)
        if body.stream:
            return await self._stream(request, job, feed, objects)
        with closing(feed):
            return await while_connected(request, self._whole(job, feed, objects, record))

    def _token_texts(self, job: Job) -> TokenTexts:
        if self._texts is None:
            self._texts = TokenTexts(job.requests[0].tokenizer)
        return self._texts

    # -- whole ------------------------------------------------------------------------------------

    async def _whole(self, job: Job, feed: Feed, objects: Objects, record: Record) -> Response:
        answers = _answers(job, objects)
        while deltas := await feed.take():
            add_all(answers, deltas)
        _note(record, job, answers)
        return Response(encoded(objects.whole(answers)), media_type="application/json")

    # -- streamed ---------------------------------------------------------------------------------

    async def _stream(
        self, request: Request, job: Job, feed: Feed, objects: Objects
    ) -> EventStream:
        """Wait for the first word, as errors before it still have a status; then stream."""
        try:
            await while_connected(request, feed.arrive())
        except BaseException:
            feed.close()
            raise
        record = record_of(request.scope)
        record.aborted = "disconnect"  # unless it comes to its end
        return EventStream(self._events(job, feed, objects, record), feed.close)

    async def _events(
        self, job: Job, feed: Feed, objects: Objects, record: Record
    ) -> AsyncGenerator[bytes]:
        answers = _answers(job, objects)
        try:
            async with aclosing(self._chunks(answers, feed, objects)) as chunks:
                async for chunk in chunks:
                    yield chunk
            yield DONE
            record.aborted = None
        except ApiError as error:
            record.aborted = "slow_reader" if feed.is_overrun else "error"
            record.error = error.message
            yield event(error.to_dict())
        finally:
            _note(record, job, answers)

    async def _chunks(
        self, answers: list[Answer], feed: Feed, objects: Objects
    ) -> AsyncGenerator[bytes]:
        opened: set[int] = set()
        while deltas := await feed.take():
            found = []
            for index, part in add_all(answers, deltas):
                if index not in opened:
                    opened.add(index)
                    found.append(objects.opening(index))
                found.append(objects.chunk(index, part))
            chunks = b"".join(event(chunk) for chunk in found if chunk is not None)
            if chunks:
                yield chunks
        if objects.includes_usage:
            yield event(objects.usage_chunk(answers))


def _answers(job: Job, objects: Objects) -> list[Answer]:
    return [
        Answer(
            request.tokenizer,
            wants_origins=job.details,
            wants_offsets=objects.wants_logprobs,
            is_silent=job.body.is_silent,
        )
        for request in job.requests
    ]


def _note(record: Record, job: Job, answers: list[Answer]) -> None:
    """Tell the log what a request was and cost."""
    told = usage([answer.usage for answer in answers], job.answers_each)
    record.lossy = job.lossy
    record.facts |= {
        "stream": bool(job.body.stream),
        "answers": len(answers),
        "prompt_tokens": told["prompt_tokens"],
        "cached_tokens": told["prompt_tokens_details"]["cached_tokens"],
        "completion_tokens": told["completion_tokens"],
        "finish_reasons": [answer.finish_reason for answer in answers],
        "speculation": told["speculation"],
        **lossy_field(job.lossy),
    }
