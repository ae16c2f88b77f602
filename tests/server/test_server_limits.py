from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from serving import CHAT, COMPLETIONS, MODEL, Running, load_tiny, raw_connection, serving, slowed

from outrider.errors import OptionError
from outrider.server.settings import ServerSettings


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(
        max_body_bytes=2000,
        max_prompt_tokens=50,
        max_new_tokens=20,
        cors_origins=("https://page.example",),
    ) as server:
        yield server


def error(response: Any) -> dict[str, Any]:
    found: dict[str, Any] = response.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


def test_a_body_that_is_too_large_is_refused_however_it_is_sent(running: Running) -> None:
    body = json.dumps({"model": MODEL, "prompt": "a" * 3000})
    headers = {"content-type": "application/json"}
    for content in (body.encode(), iter([body[:1500].encode(), body[1500:].encode()])):
        response = running.http.post(COMPLETIONS, content=content, headers=headers)
        assert response.status_code == 413
        assert "2000" in error(response)["message"]


def test_a_body_far_too_large_is_not_read_to_its_end(running: Running) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 2**30:
            sent += 65536
            yield b" " * 65536

    headers = {"content-type": "application/json"}
    # The connection may be cut before the answer is read.
    with suppress(httpx2.TransportError):
        response = running.http.post(COMPLETIONS, content=endless(), headers=headers)
        assert response.status_code == 413
    assert sent < 2**28
    assert running.complete().status_code == 200


def test_a_body_must_be_json_by_its_own_account(running: Running) -> None:
    body = json.dumps({"model": MODEL, "prompt": "ab"})
    for kind in ("text/plain", "application/x-www-form-urlencoded", None):
        headers: dict[str, str] = {} if kind is None else {"content-type": kind}
        response = running.http.post(COMPLETIONS, content=body, headers=headers)
        assert response.status_code == 415 and error(response)
    headers = {"content-type": "application/JSON; charset=utf-8"}
    assert running.http.post(COMPLETIONS, content=body, headers=headers).status_code == 200


def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    with serving(body_seconds=0.2) as running, raw_connection(running) as slow:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        slow.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        with slow.makefile("rb") as answer:
            assert b" 408 " in answer.readline()


def test_prompts_and_answers_have_their_longest(running: Running) -> None:
    assert running.complete("a" * 50, max_tokens=20).status_code == 200
    long_prompt = running.complete("a" * 51)
    assert error(long_prompt)["code"] == "context_length_exceeded"
    assert "at most 50" in error(long_prompt)["message"]
    long_answer = running.complete(max_tokens=21)
    assert long_answer.status_code == 400 and error(long_answer)["param"] == "max_tokens"
    assert running.chat().json()["usage"]["completion_tokens"] == 20


def test_only_pages_of_the_sites_that_were_named_may_ask(running: Running) -> None:
    def asks(origin: str, method: str = "POST") -> Any:
        headers = {"origin": origin, "access-control-request-method": method}
        return running.http.options(CHAT, headers=headers).headers

    assert asks("https://page.example")["access-control-allow-origin"] == "https://page.example"
    assert "access-control-allow-origin" not in asks("https://other.example")


def test_without_a_named_site_no_page_may_ask_and_a_full_queue_says_when_to_come_again() -> None:
    with serving(slowed(lambda: load_tiny("none", max_batch=1), 0.2), max_queue=1) as running:
        headers = {"origin": "https://page.example"}
        assert (
            "access-control-allow-origin" not in running.http.get("/ready", headers=headers).headers
        )
        body: dict[str, Any] = {"model": MODEL, "prompt": "ab", "max_tokens": 150, "stream": True}
        with running.http.stream("POST", COMPLETIONS, json=body) as first:
            next(first.iter_lines())
            # Two answers: one may wait, for the other there is no room, so neither is begun.
            refused = running.complete(n=2, max_tokens=150)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert error(refused)["type"] == "rate_limit_error"
            assert error(refused)["code"] == "queue_full"
        running.wait_idle()
        # Of three answers one would never have a place: to come again would be of no use.
        assert error(running.complete(n=3))["param"] == "n"
        assert error(running.complete(["a", "b", "c"]))["param"] == "n"
        assert running.complete(max_tokens=2).status_code == 200
        assert "outrider_refused_total 1.0" in running.http.get("/metrics").text


@pytest.mark.parametrize(
    "values",
    [
        {"model": ""},
        {"api_keys": ("",)},
        {"max_body_bytes": 0},
        {"max_prompt_tokens": 0},
        {"max_new_tokens": 0},
        {"max_queue": -1},
        {"prefill_rows": 1},
        {"max_prefixes": -1},
        {"drain_seconds": -1.0},
    ],
)
def test_a_limit_out_of_its_range_is_refused(values: dict[str, Any]) -> None:
    (name,) = values
    words = {"model": "name", "api_keys": "api-key"}
    with pytest.raises(OptionError, match=words.get(name, name)):
        ServerSettings(**{"model": MODEL} | values)
