from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest
from serving import (
    CHAT,
    MODEL,
    PATIENCE_S,
    Running,
    load_tiny,
    raw_connection,
    serving,
    slowed,
)

from outrider.decoder import Decoder
from outrider.errors import LoadError, OptionError
from outrider.server.bodies import Generation
from outrider.server.jobs import Job, Preparer
from outrider.server.run import ServerFailedError, bind, serve
from outrider.server.settings import ServerSettings

MESSAGES = [{"role": "user", "content": "hi"}]


class Caller:
    """A request in a thread of its own."""

    def __init__(self, running: Running, **fields: Any) -> None:
        self.response: httpx2.Response | None = None
        self._fields = fields
        self._running = running
        self._thread = threading.Thread(target=self._call)
        self._thread.start()

    def _call(self) -> None:
        self.response = self._running.chat(**self._fields)

    def answer(self) -> httpx2.Response:
        self._thread.join(PATIENCE_S)
        assert self.response is not None, "no answer came"
        return self.response


def now(running: Running) -> int:
    snapshot = running.service.snapshot
    assert snapshot is not None
    return snapshot.running


def test_no_request_is_taken_before_the_model_is_loaded() -> None:
    may_load = threading.Event()

    def load() -> Decoder:
        assert may_load.wait(PATIENCE_S)
        return load_tiny()

    with serving(load, wait=False) as running:
        early = running.chat()
        assert early.status_code == 503 and int(early.headers["retry-after"]) > 0
        assert early.json()["error"]["code"] == "loading"
        assert running.http.get("/v1/models").status_code == 503
        assert running.http.get("/ready").status_code == 503
        assert running.http.get("/health").status_code == 200
        assert running.http.get("/metrics").status_code == 200
        may_load.set()
        running.wait_until(lambda: running.service.state == "ready")
        assert running.http.get("/ready").status_code == 200
        assert running.chat(max_tokens=1).status_code == 200


def test_draining_finishes_what_runs_and_takes_no_more() -> None:
    with serving(slowed(load_tiny)) as running:
        caller = Caller(running, max_tokens=60)
        running.wait_until(lambda: now(running) == 1)
        running.leave()
        running.wait_until(lambda: running.service.state == "draining")
        late = running.chat()
        assert late.status_code == 503 and late.json()["error"]["code"] == "draining"
        assert running.http.get("/ready").status_code == 503
        assert running.http.get("/health").status_code == 200
        answer = caller.answer()
        assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 60
        running.thread.join(PATIENCE_S)
        assert not running.thread.is_alive()
        assert running.service.worker.error is None


def test_a_body_that_breaks_off_is_no_fault_of_the_server() -> None:
    with serving() as running:
        with raw_connection(running) as connection:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        counted = f'outrider_http_requests_total{{kind="whole",route="{CHAT}",status="499"}} 1.0'
        running.wait_until(lambda: counted in running.http.get("/metrics").text)
        assert 'reason="disconnect"} 1.0' in running.http.get("/metrics").text


def test_a_second_signal_ends_what_runs_at_once() -> None:
    with serving(slowed(load_tiny, 0.05)) as running:
        whole, stream = Caller(running, max_tokens=170), Caller(running, stream=True)
        running.wait_until(lambda: now(running) == 2)
        running.leave()
        running.wait_until(lambda: running.service.state == "draining")
        running.leave()
        cut = whole.answer()
        assert cut.status_code == 503 and cut.json()["error"]["code"] == "shutting_down"
        assert "shutting_down" in stream.answer().text and "[DONE]" not in stream.answer().text


def test_draining_has_an_end() -> None:
    with serving(slowed(load_tiny, 0.05), drain_seconds=0.2) as running:
        caller = Caller(running, max_tokens=170)
        running.wait_until(lambda: now(running) == 1)
        running.leave()
        assert caller.answer().status_code == 503
        running.thread.join(PATIENCE_S)
        assert not running.thread.is_alive()


def test_an_engine_that_breaks_down_is_told_to_all_who_wait() -> None:
    def load() -> Decoder:
        return slowed(load_tiny)()

    with serving(load) as running:
        callers = [Caller(running, max_tokens=170), Caller(running, stream=True)]
        running.wait_until(lambda: now(running) == 2)
        scheduler: Any = running.service.worker.scheduler
        scheduler.step = lambda: 1 / 0
        whole, stream = (caller.answer() for caller in callers)
        assert whole.status_code == 500 and whole.json()["error"]["type"] == "server_error"
        assert "the engine has failed" in stream.text and "[DONE]" not in stream.text
        assert "ZeroDivision" not in whole.text + stream.text
        health = running.http.get("/health")
        assert health.status_code == 503 and health.json() == {"status": "failed"}
        assert running.chat().status_code == 500
        assert isinstance(running.service.worker.error, ZeroDivisionError)


def test_a_fault_in_one_request_is_logged_with_its_id_and_ends_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults: list[Exception] = []

    def load() -> Decoder:
        decoder = load_tiny()
        target: Any = decoder.engine.target
        score = target.score

        def faulty(*arguments: Any) -> Any:
            if faults:
                raise faults.pop()
            return score(*arguments)

        target.score = faulty
        return decoder

    with serving(load) as running:
        faults.append(ZeroDivisionError("by chance"))
        failed = running.chat()
        assert failed.status_code == 500 and "chance" not in failed.text
        (line,) = [record for record in caplog.records if record.exc_info is not None]
        assert failed.headers["x-request-id"] in line.getMessage()
        assert line.exc_info is not None and "by chance" in str(line.exc_info[1])
        assert running.chat().status_code == 200
        assert running.service.worker.scheduler.audit() == []


def test_all_that_is_done_once_for_a_kind_of_request_is_done_before_any_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared: list[str] = []
    prepare = Preparer.prepare

    def noted(preparer: Preparer, body: Generation, **options: Any) -> Job:
        prepared.append(f"{type(body).__name__} {threading.current_thread().name}")
        return prepare(preparer, body, **options)

    monkeypatch.setattr(Preparer, "prepare", noted)
    with serving(load_tiny):
        assert set(prepared) == {"Chat outrider-worker", "Completion outrider-worker"}


def test_a_model_that_cannot_be_loaded_is_the_end_of_the_server() -> None:
    def load() -> Decoder:
        raise LoadError("no such model")

    with bind("127.0.0.1", 0) as listener, pytest.raises(LoadError, match="no such model"):
        serve(load, ServerSettings(model=MODEL), listener)


def test_a_signal_ends_the_server_and_an_interrupt_is_passed_on() -> None:
    for sig in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(sig)
        with bind("127.0.0.1", 0) as listener, ExitStack() as stack:
            if sig == signal.SIGINT:
                stack.enter_context(pytest.raises(KeyboardInterrupt))
            serve(
                load_tiny,
                ServerSettings(model=MODEL),
                listener,
                on_ready=lambda sig=sig: os.kill(os.getpid(), sig),  # type: ignore[misc]
            )
        assert signal.getsignal(sig) == before


def test_an_engine_that_breaks_down_ends_the_server_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("outrider.server.run._FAILED_S", 0.0)
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        url = f"http://127.0.0.1:{port}{CHAT}"

        def load() -> Decoder:
            decoder = load_tiny()
            engine: Any = decoder.engine
            make = engine.scheduler

            def broken(**options: Any) -> Any:
                scheduler = make(**options)
                if options:  # the server's own, not that of the warm-up
                    scheduler.step = lambda: 1 / 0
                return scheduler

            engine.scheduler = broken
            return decoder

        answers: list[int] = []

        def call() -> None:
            body = {"model": MODEL, "messages": MESSAGES}
            answers.append(httpx2.post(url, json=body, timeout=PATIENCE_S).status_code)

        caller = threading.Thread(target=call)
        with pytest.raises(ServerFailedError, match="division"):
            serve(load, ServerSettings(model=MODEL), listener, on_ready=caller.start)
        caller.join(PATIENCE_S)
        assert answers == [500]


def test_an_address_that_is_taken_is_refused_before_anything_is_loaded() -> None:
    with (
        bind("127.0.0.1", 0) as taken,
        pytest.raises(OptionError, match=str(taken.getsockname()[1])),
    ):
        bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(OptionError, match="99999"):
        bind("127.0.0.1", 99999)
    with bind("127.0.0.1", 0) as listener:
        assert listener.family == socket.AF_INET


def test_the_server_is_not_the_first_to_close_an_idle_connection() -> None:
    """A request on a connection that is being closed is lost; OpenAI's client keeps its own 5 s."""
    with serving() as running:
        assert running.server.config.timeout_keep_alive > 60
