"""A server that was started with a lossy rule says so wherever it speaks; no other can be lossy."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from serving import CHAT, MODEL, Running, load_tiny, serving
from stream_reading import events

from outrider.decoder import Decoder

RULE = "typical:0.01,0.01"
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 5, "max_tokens": 60}


def load_lossy() -> Decoder:
    return load_tiny("suffix,prediction", lossy=RULE, max_draft=4)


@pytest.fixture(scope="module")
def lossy() -> Iterator[Running]:
    with serving(load_lossy) as server:
        yield server


@pytest.fixture(scope="module")
def lossless() -> Iterator[Running]:
    with serving(lambda: load_tiny("suffix,prediction", max_draft=4)) as server:
        yield server


def text(answer: Any) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def streamed(running: Running, **fields: Any) -> list[dict[str, Any]]:
    messages = [{"role": "user", "content": "hi"}]
    body = {"model": MODEL, "messages": messages, "stream": True, **fields}
    with running.http.stream("POST", CHAT, json=body) as response:
        return events(response.iter_lines())


def test_every_answer_says_so(lossy: Running) -> None:
    for answer in (lossy.chat(max_tokens=9), lossy.complete(max_tokens=9, n=2)):
        told = answer.json()
        assert told["lossy"] == told["usage"]["speculation"]["lossy"] == RULE


def test_every_chunk_of_a_stream_says_so(lossy: Running) -> None:
    for fields in ({}, {"stream_options": {"include_usage": True}}):
        chunks = streamed(lossy, max_tokens=9, **fields)
        assert chunks and all(chunk["lossy"] == RULE for chunk in chunks)
    details = streamed(lossy, max_tokens=9, speculation={"details": True})
    told = [chunk["speculation"] for chunk in details if "speculation" in chunk]
    assert told and all(one["lossy"] == RULE for one in told)


def test_what_is_drafted_passes_and_the_text_is_another(lossy: Running, lossless: Running) -> None:
    predicted = {"prediction": {"type": "content", "content": "never the model's words " * 3}}
    own = text(lossless.chat(**SAMPLED, **predicted))
    assert own == text(lossless.chat(**SAMPLED))
    assert text(lossy.chat(**SAMPLED, **predicted)) != own


@pytest.mark.parametrize(
    "speculation", [{"enabled": False}, {"drafter": "none"}, {"rule": "match"}]
)
def test_a_request_that_opts_out_has_the_targets_text_and_no_label(
    lossy: Running, lossless: Running, speculation: dict[str, Any]
) -> None:
    answer = lossy.chat(**SAMPLED, speculation=speculation)
    assert text(answer) == text(lossless.chat(**SAMPLED))
    told = answer.json()
    assert "lossy" not in told and "lossy" not in told["usage"]["speculation"]


def test_no_request_makes_a_server_lossy(lossless: Running) -> None:
    for fields in (
        {"lossy": RULE},
        {"speculation": {"lossy": RULE}},
        {"speculation": {"rule": RULE}},
        {"speculation": {"rule": "typical"}},
    ):
        assert lossless.chat(**fields).status_code == 400
    told = lossless.chat(max_tokens=9).json()
    assert "lossy" not in told and "lossy" not in told["usage"]["speculation"]


def test_the_model_says_so(lossy: Running, lossless: Running) -> None:
    for running, rule in ((lossy, RULE), (lossless, None)):
        (model,) = running.http.get("/v1/models").json()["data"]
        assert model["outrider"]["lossy"] == rule
        assert model["outrider"]["rule"] == (None if rule else "match")


def test_metrics_count_lossy_answers_from_the_start(lossless: Running) -> None:
    name = f'outrider_lossy_requests_total{{rule="{RULE}"}}'
    with serving(load_lossy) as running:
        counts = []
        for speculation in ({}, {"enabled": False}):
            counts.append(_value(running, name))
            running.chat(max_tokens=3, speculation=speculation)
        assert [*counts, _value(running, name)] == [0.0, 1.0, 1.0]
    assert "lossy" not in lossless.http.get("/metrics").text


def _value(running: Running, name: str) -> float:
    lines = running.http.get("/metrics").text.splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return float(line.rpartition(" ")[2])


def test_the_log_says_so_at_the_start_and_of_each_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "outrider.server"), serving(load_lossy) as running:
        running.chat(max_tokens=3)
        running.chat(max_tokens=3, speculation={"enabled": False})
        running.wait_until(lambda: len(_lines(caplog)) == 2)
    assert f"LOSSY ({RULE}): answers may differ from the target's own" in caplog.text
    assert [line.get("lossy") for line in _lines(caplog)] == [RULE, None]


def _lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    fields = [record.__dict__.get("fields", {}) for record in caplog.records]
    return [line for line in fields if "completion_tokens" in line]
