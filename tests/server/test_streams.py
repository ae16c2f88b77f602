from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from serving import (
    CHAT,
    COMPLETIONS,
    MODEL,
    PATIENCE_S,
    Running,
    load_tiny,
    raw_connection,
    serving,
    slowed,
)
from stream_reading import events, texts

from outrider.decoder import Decoder

MESSAGES = [{"role": "user", "content": "abcabcabcabc"}]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(slowed(lambda: load_tiny(max_draft=4), 0.002)) as server:
        yield server


@pytest.fixture(scope="module")
def offline() -> Decoder:
    return load_tiny("none")


def read(running: Running, path: str = CHAT, **fields: Any) -> list[dict[str, Any]]:
    subject = {"messages": MESSAGES} if path == CHAT else {"prompt": "abcabcabc"}
    body = {"model": MODEL, "stream": True, **subject, **fields}
    with running.http.stream("POST", path, json=body) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        return events(response.iter_lines())


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 1, "seed": 2, "n": 2}, {"stop": ["a", "b"]}, {"logit_bias": {"65": 60}}],
)
def test_pieces_join_to_the_text_that_is_not_streamed(
    running: Running, path: str, options: dict[str, Any]
) -> None:
    """SERVE-5."""
    subject = {"messages": MESSAGES} if path == CHAT else {"prompt": "abcabcabc"}
    whole = running.http.post(path, json={"model": MODEL, "max_tokens": 30, **subject, **options})
    expected = {
        choice["index"]: choice["text"] if path == COMPLETIONS else choice["message"]["content"]
        for choice in whole.json()["choices"]
    }
    chunks = read(running, path, max_tokens=30, stream_options={"include_usage": True}, **options)
    assert texts(chunks) == expected
    told, streamed = whole.json()["usage"], chunks[-1]["usage"]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert streamed[name] == told[name]


def test_log_probabilities_of_a_stream_are_those_of_the_whole(running: Running) -> None:
    fields: dict[str, Any] = {
        "max_tokens": 20,
        "logprobs": True,
        "top_logprobs": 2,
        "stop": ["zzz"],
    }
    whole = running.http.post(CHAT, json={"model": MODEL, "messages": MESSAGES, **fields}).json()
    streamed: list[Any] = []
    for chunk in read(running, **fields):
        logprobs = chunk["choices"][0]["logprobs"]
        streamed += logprobs["content"] if logprobs else []
    assert streamed == whole["choices"][0]["logprobs"]["content"]


def test_offsets_of_a_streamed_completion_are_those_of_the_whole(running: Running) -> None:
    fields = {"max_tokens": 20, "logprobs": 1}
    body = {"model": MODEL, "prompt": "abcabcabc", **fields}
    whole = running.http.post(COMPLETIONS, json=body).json()["choices"][0]["logprobs"]
    joined: dict[str, list[Any]] = {name: [] for name in whole}
    for chunk in read(running, COMPLETIONS, **fields):
        for name, values in chunk["choices"][0]["logprobs"].items():
            joined[name] += values
    assert joined == whole


def test_details_tell_of_each_piece_where_it_came_from(running: Running, offline: Decoder) -> None:
    bias = {"65": 100}  # one letter for ever: lookup drafters are soon right
    chunks = read(
        running,
        max_tokens=60,
        logit_bias=bias,
        speculation={"details": True},
        stream_options={"include_usage": True},
    )
    told = [chunk["speculation"] for chunk in chunks if "speculation" in chunk]
    pieces = [piece for one in told for piece in one["pieces"]]
    assert "".join(piece["text"] for piece in pieces) == texts(chunks)[0]
    assert {piece["source"] for piece in pieces} >= {"plain", "accepted"}
    assert {p["drafter"] for p in pieces if p["source"] != "accepted"} == {None}
    assert told[-1]["tokens"] == 60
    usage = chunks[-1]["usage"]["speculation"]
    assert {name: told[-1][name] for name in usage} == usage
    assert usage["accepted"] == sum(p["source"] == "accepted" for p in pieces) > 0
    assert usage["acceptance_length"] == pytest.approx(60 / usage["rounds"])
    assert set(told[-1]["seconds"]) == {"prefill", "draft", "score", "host"}


def test_what_is_not_asked_for_is_not_in_the_stream(running: Running) -> None:
    for chunk in read(running, max_tokens=5):
        assert not {"speculation", "usage"} & set(chunk)


def test_a_client_that_leaves_a_stream_frees_its_row(running: Running) -> None:
    """SERVE-3."""
    body = {"model": MODEL, "messages": MESSAGES, "stream": True}
    before = aborted(running)
    with running.http.stream("POST", CHAT, json=body) as response:
        next(response.iter_lines())
        assert not running.is_idle
    running.wait_idle()
    running.wait_until(lambda: aborted(running) == before + 1)
    snapshot = running.service.snapshot
    assert snapshot is not None and snapshot.cancelled >= 1


def test_a_client_that_leaves_before_its_whole_answer_frees_its_row(running: Running) -> None:
    before = aborted(running)
    with raw_connection(running) as connection:
        send(connection, '{"model":"tiny","prompt":"ab","max_tokens":180}')
        running.wait_until(lambda: not running.is_idle)
    running.wait_idle()
    running.wait_until(lambda: aborted(running) == before + 1)


def test_a_client_that_leaves_the_queue_gives_up_its_place() -> None:
    with (
        serving(slowed(lambda: load_tiny(max_batch=1))) as running,
        raw_connection(running) as first,
    ):
        send(first, '{"model":"tiny","prompt":"ab","max_tokens":180}')
        running.wait_until(lambda: running_now(running) == (1, 0))
        with raw_connection(running) as second:
            send(second, '{"model":"tiny","prompt":"ab","max_tokens":180,"stream":true}')
            running.wait_until(lambda: running_now(running) == (1, 1))
        running.wait_until(lambda: running_now(running) == (1, 0))
        first.close()
        running.wait_idle()


def test_a_stream_that_is_not_read_is_cancelled_and_slows_no_other() -> None:
    with (
        serving(stream_buffer=4, send_buffer=4096) as running,
        raw_connection(running) as slow,
    ):
        fields = '"n":4,"logprobs":20,"max_tokens":180,"stream":true'
        send(slow, f'{{"model":"tiny","prompt":"ab",{fields}}}')
        assert running.complete(max_tokens=8).status_code == 200
        running.wait_idle()
        snapshot = running.service.snapshot
        assert snapshot is not None and snapshot.cancelled == 4
        # Whoever reads on after all finds out.
        slow.settimeout(PATIENCE_S)
        with slow.makefile("rb") as lines:
            last = [line for line in lines if line.startswith(b"data: ")][-1]
        assert b"not read fast enough" in last
        running.wait_until(lambda: aborted(running, "slow_reader") == 1)


def test_a_client_that_reads_a_byte_at_a_time_costs_nobody_a_round() -> None:
    """Others get a token in each round meanwhile, and the slow one its whole answer in the end."""
    with (
        serving(slowed(lambda: load_tiny("none")), send_buffer=4096) as running,
        raw_connection(running) as slow,
    ):
        rounds = watched_rounds(running)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        send(slow, '{"model":"tiny","prompt":"ab","logprobs":8,"max_tokens":120,"stream":true}')
        running.wait_until(lambda: running_now(running) == (1, 0))
        for _ in range(3):
            assert slow.recv(1)
            assert running.complete("other", max_tokens=20).status_code == 200
        with slow.makefile("rb") as lines:
            assert b"[DONE]" in b"".join(lines)
        running.wait_idle()
        snapshot = running.service.snapshot
        assert snapshot is not None and snapshot.cancelled == 0
    for ticket in (1, 2, 3):
        (first, *_, last) = [place for place, served in enumerate(rounds) if ticket in served]
        assert last - first == 20 - 1
    assert any(0 in served and len(served) > 1 for served in rounds)


def watched_rounds(running: Running) -> list[set[int]]:
    """Return a list that grows by the numbers of those who get something in a round."""
    scheduler: Any = running.service.worker.scheduler
    step, rounds = scheduler.step, []

    def noted() -> Any:
        events = step()
        rounds.append({event.ticket.number for event in events})
        return events

    scheduler.step = noted
    return rounds


def running_now(running: Running) -> tuple[int, int]:
    snapshot = running.service.snapshot
    assert snapshot is not None
    return snapshot.running, snapshot.queued


def aborted(running: Running, reason: str = "disconnect") -> float:
    lines = running.http.get("/metrics").text.splitlines()
    start = f'outrider_http_aborted_total{{reason="{reason}"}}'
    (line,) = [one for one in lines if one.startswith(start)]
    return float(line.split()[-1])


def send(connection: socket.socket, body: str) -> None:
    head = (
        f"POST {COMPLETIONS} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(f"{head}{body}".encode())
