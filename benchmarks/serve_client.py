"""The client of the soak: it sends what was drawn, and reads what comes back, or goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from serve_common import stream_events
from serve_offline import Said
from serve_requests import STATUSES, Asked

_GONE = 0
"""The status of a request whose client did not wait for one."""
_QUEUE_FULL = 429
_MOST_TRIES = 600


@dataclass(slots=True)
class Outcome:
    """What came of a request."""

    asked: Asked
    statuses: list[int] = field(default_factory=list)
    """Of each try: a full queue is tried again."""
    said: list[Said] | None = None
    tokens: int | None = None
    """Of all answers, if usage was told."""
    fault: str | None = None
    retry_after_s: float = 0.0
    """What a full queue has said."""

    @property
    def status(self) -> int:
        """The last status."""
        return self.statuses[-1] if self.statuses else _GONE


class Client:
    """Sends requests as they were drawn, and reads what comes back as far as they say."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url

    async def ask(self, asked: Asked) -> Outcome:
        """Send one request to its end."""
        outcome = Outcome(asked)
        try:
            if asked.kind == "cut":
                await self._cut(asked)
                return outcome
            for _ in range(_MOST_TRIES):
                await self._once(asked, outcome)
                if outcome.status != _QUEUE_FULL:
                    break
                await asyncio.sleep(outcome.retry_after_s)
        except (httpx2.TransportError, ValueError, KeyError) as error:
            outcome.fault = f"{type(error).__name__}: {error}"
        if outcome.fault is None and outcome.status not in STATUSES[asked.kind] | {_GONE}:
            outcome.fault = f"status {outcome.status}"
        return outcome

    async def _once(self, asked: Asked, outcome: Outcome) -> None:
        if asked.kind == "gone" and not asked.body["stream"]:
            await self._leave(asked, outcome)
        elif asked.is_right and asked.body["stream"]:
            await self._stream(asked, outcome)
        else:
            await self._whole(asked, outcome)

    async def _whole(self, asked: Asked, outcome: Outcome) -> None:
        response = await self._http.post(asked.path, content=asked.raw, headers=_headers(asked))
        outcome.statuses.append(response.status_code)
        if response.status_code != 200:
            self._refused(response, outcome)
            return
        answer = response.json()
        outcome.said = [_said(choice) for choice in answer["choices"]]
        outcome.tokens = answer["usage"]["completion_tokens"]

    def _refused(self, response: httpx2.Response, outcome: Outcome) -> None:
        error = response.json()["error"]
        if set(error) != {"message", "type", "param", "code"}:
            outcome.fault = f"an error object with {sorted(error)}"
        if response.status_code == _QUEUE_FULL:
            outcome.retry_after_s = float(response.headers["retry-after"])

    async def _leave(self, asked: Asked, outcome: Outcome) -> None:
        try:
            async with asyncio.timeout(asked.patience / 100):
                await self._whole(asked, outcome)
        except TimeoutError:
            return

    async def _stream(self, asked: Asked, outcome: Outcome) -> None:
        request = self._http.stream("POST", asked.path, content=asked.raw, headers=_headers(asked))
        async with request as response:
            outcome.statuses.append(response.status_code)
            if response.status_code != 200:
                await response.aread()
                self._refused(response, outcome)
                return
            parts: dict[int, list[dict[str, Any]]] = {}
            count = 0
            async for chunk in stream_events(response):
                count += 1
                if asked.kind == "gone" and count > asked.patience:
                    return
                if "error" in chunk:
                    raise ValueError(f"an error in the stream: {chunk['error']}")
                for choice in chunk["choices"]:
                    parts.setdefault(choice["index"], []).append(choice)
                if chunk.get("usage"):
                    outcome.tokens = chunk["usage"]["completion_tokens"]
            outcome.said = [_joined(parts[index]) for index in sorted(parts)]

    async def _cut(self, asked: Asked) -> None:
        """Send half a request, and close the connection."""
        host, _, port = self._url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {asked.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(asked.raw)}\r\n\r\n".encode())
        writer.write(asked.raw[: len(asked.raw) // 2])
        await writer.drain()
        await asyncio.sleep(asked.patience / 100)
        writer.close()
        await writer.wait_closed()


def _headers(asked: Asked) -> dict[str, str]:
    return {"content-type": asked.content_type} if asked.content_type else {}


def _said(choice: dict[str, Any]) -> Said:
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    return Said(text, choice["finish_reason"], _logprobs(choice))


def _logprobs(choice: dict[str, Any]) -> tuple[float, ...] | None:
    found = choice["logprobs"]
    if found is None:
        return None
    if "content" in found:
        return tuple(entry["logprob"] for entry in found["content"])
    return tuple(value for value in found["token_logprobs"] if value is not None)


def _joined(parts: Sequence[dict[str, Any]]) -> Said:
    texts = [part["text"] if "text" in part else part["delta"].get("content", "") for part in parts]
    told = [values for part in parts if (values := _logprobs(part)) is not None]
    logprobs = tuple(value for values in told for value in values) if told else None
    return Said("".join(texts), parts[-1]["finish_reason"], logprobs)
