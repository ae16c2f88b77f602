"""Servers of a tiny model on loopback, each in a thread, and the same model offline."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from openai import OpenAI
from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

import outrider
from outrider.decoder import Decoder
from outrider.server.run import OutriderServer, bind
from outrider.server.service import Service
from outrider.server.settings import ServerSettings
from outrider.server.worker import Worker
from support.tiny import tiny_model

MODEL = "tiny"
CONTEXT = 192
END = "<|end|>"
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.content == 'refuse me' %}{{ raise_exception('not this one') }}{% endif %}"
    "{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
PATIENCE_S = 60.0
"""How long a test waits for what must happen before it gives up."""


def byte_level_tokenizer(*, template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    """Return a tokenizer with an id for each byte, and END after them."""
    letters = sorted(ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    make: Any = PreTrainedTokenizerFast  # its constructor is untyped
    made: PreTrainedTokenizerFast = make(tokenizer_object=tokenizer, eos_token=END)
    made.chat_template = template
    return made


def load_tiny(drafter: str = "suffix,ngram,prediction", **options: Any) -> Decoder:
    """Return a decoder of the tiny model: the same weights each time."""
    model = tiny_model(vocab_size=257, max_position_embeddings=CONTEXT)
    tokenizer = byte_level_tokenizer()
    return outrider.load(model, tokenizer=tokenizer, drafter=drafter, profile=False, **options)


def slowed(load: Callable[[], Decoder], seconds: float = 0.01) -> Callable[[], Decoder]:
    """Let each pass of the target take so long, that there is time to do something meanwhile."""

    def slow() -> Decoder:
        decoder = load()
        target: Any = decoder.engine.target
        score = target.score

        def wait_and_score(*arguments: Any) -> Any:
            time.sleep(seconds)
            return score(*arguments)

        target.score = wait_and_score
        return decoder

    return slow


@dataclass
class Running:
    """A server that runs, and what a test needs of it."""

    service: Service
    server: OutriderServer
    thread: threading.Thread
    url: str
    http: httpx2.Client

    def openai(self, **options: Any) -> OpenAI:
        """Return the official client, for this server."""
        usual: dict[str, Any] = {"api_key": "none", "max_retries": 0}
        return OpenAI(base_url=f"{self.url}/v1", **usual | options)

    def chat(self, content: Any = "hi", **fields: Any) -> httpx2.Response:
        """Ask for a chat's next message."""
        messages = [{"role": "user", "content": content}]
        return self.http.post(CHAT, json={"model": MODEL, "messages": messages} | fields)

    def complete(self, prompt: Any = "ab", **fields: Any) -> httpx2.Response:
        """Ask for a completion."""
        return self.http.post(COMPLETIONS, json={"model": MODEL, "prompt": prompt} | fields)

    def leave(self) -> None:
        """Do what SIGTERM does."""
        assert self.server.loop is not None
        self.server.loop.call_soon_threadsafe(self.server.leave)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something to become true; fails if it does not."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.005)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        snapshot = self.service.snapshot
        return snapshot is not None and snapshot.running == 0 and snapshot.queued == 0

    def wait_idle(self) -> None:
        """Wait until nothing runs or waits, and check that nothing is left over."""
        self.wait_until(lambda: self.is_idle)
        assert self.service.worker.scheduler.audit() == []


@contextmanager
def serving(
    load: Callable[[], Decoder] = load_tiny,
    *,
    wait: bool = True,
    send_buffer: int | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """Run a server for the length of a test; `send_buffer` is its sockets', in bytes."""
    usual: dict[str, Any] = {"model": MODEL, "drain_seconds": 5.0}
    made = ServerSettings(**usual | settings)
    service = Service(Worker(load, made), made)
    with bind("127.0.0.1", 0) as listener:
        if send_buffer is not None:  # connections have that of their listener
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = OutriderServer(service)
        thread = threading.Thread(target=server.run, args=([listener],))
        with httpx2.Client(base_url=url, timeout=PATIENCE_S) as http:
            running = Running(service, server, thread, url, http)
            thread.start()
            running.wait_until(lambda: server.started)
            try:
                if wait:
                    running.wait_until(lambda: service.state != "loading")
                    assert service.state == "ready", service.worker.error
                yield running
            finally:
                _stop(running)


def _stop(running: Running) -> None:
    running.http.close()
    if running.thread.is_alive():
        running.leave()
        running.leave()
    running.thread.join(PATIENCE_S)
    assert not running.thread.is_alive(), "the server did not end"
    assert running.service.worker.join(PATIENCE_S), "the worker did not end"


def raw_connection(running: Running) -> socket.socket:
    """Return a bare connection, for clients that misbehave."""
    host, port = running.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)
