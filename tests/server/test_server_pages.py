from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from serving import Running, serving

from outrider.server.logs import json_logs


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(log_prompts=True) as server:
        yield server


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.labelled: set[str] = set()
        self.fields: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.links += [value for name, value in attrs if name in ("src", "href") and value]
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "label" and found.get("for"):
            self.labelled.add(str(found["for"]))
        if tag in ("textarea", "select") or (tag == "input" and found.get("role") != "switch"):
            self.fields.append(str(found["id"]))


def test_the_page_needs_nothing_from_elsewhere(running: Running) -> None:
    page = running.http.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'self'" in page.headers["content-security-policy"]
    parsed = _Links()
    parsed.feed(page.text)
    assert len(parsed.ids) == len(set(parsed.ids))
    for link in parsed.links:
        if link.startswith("#"):
            assert link[1:] in parsed.ids
        else:
            part = running.http.get(f"/{link}")
            assert part.status_code == 200
            assert not re.findall(r"https?://(?!www\.w3\.org)", part.text)
    assert set(parsed.fields) <= parsed.labelled
    # What the script looks up is there.
    wanted = set(re.findall(r'byId\("([\w-]+)"\)', running.http.get("/page.js").text))
    assert wanted <= set(parsed.ids)


def test_the_interface_describes_itself(running: Running) -> None:
    described = running.http.get("/openapi.json").json()
    assert set(described["paths"]) == {
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/models",
        "/v1/models/{name}",
        "/health",
        "/ready",
        "/metrics",
    }
    text = json.dumps(described)
    names = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert names <= set(described["components"]["schemas"])
    chat = described["components"]["schemas"]["Chat"]
    assert chat["additionalProperties"] is False
    assert chat["properties"]["tools"] == {"enum": [None, []], "default": None}
    statuses = described["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert set(statuses) == {
        *("200", "400", "401", "404", "408", "413", "415", "429", "500", "503")
    }


def test_what_is_not_there_is_told_as_errors_are(running: Running) -> None:
    missing, wrong = running.http.get("/v2"), running.http.get("/v1/completions")
    assert missing.status_code == 404 and "/v2" in missing.json()["error"]["message"]
    assert wrong.status_code == 405 and wrong.headers["allow"] == "POST"
    assert "GET" in wrong.json()["error"]["message"]


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [r.__dict__["fields"] for r in caplog.records if hasattr(r, "fields")]


def test_a_request_keeps_its_id_from_end_to_end(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "outrider.server"):
        answer = running.chat(max_tokens=3, user="someone")
        given = running.http.get("/v1/models", headers={"x-request-id": "my.id-1"})
        spoilt = running.http.get("/v1/models", headers={"x-request-id": 'a"b'})
        long = running.http.get("/v1/models", headers={"x-request-id": "a" * 129})
    assert given.headers["x-request-id"] == "my.id-1"
    assert spoilt.headers["x-request-id"] != 'a"b' and len(long.headers["x-request-id"]) == 32
    running.wait_until(lambda: len(lines(caplog)) == 4)
    line = lines(caplog)[0]
    assert line["request_id"] == answer.headers["x-request-id"]
    assert line["request_id"] in answer.json()["id"]
    assert line["status"] == 200 and line["route"] == "/v1/chat/completions"
    assert line["completion_tokens"] == 3 and line["finish_reasons"] == ["length"]
    assert json.loads(line["body"])["user"] == "someone"


def test_prompts_are_not_logged_unless_asked(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as running, caplog.at_level(logging.DEBUG):
        running.chat("a secret", max_tokens=2, prediction={"type": "content", "content": "secret"})
        running.chat("a secret", temperature=-1)
        running.http.post("/v1/completions", content=b'"secret', headers={"content-type": "text/x"})
    assert "secret" not in caplog.text
    assert not any("secret" in str(record.__dict__) for record in caplog.records)


def test_a_log_line_is_an_object() -> None:
    stream = io.StringIO()
    logger = logging.getLogger("outrider.server")
    with json_logs(stream):
        logger.info("a %s", "word", extra={"fields": {"n": 1}})
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn("a drafter was dropped", UserWarning, stacklevel=1)
        try:
            raise ValueError("two\nlines")
        except ValueError:
            logger.exception("failed")
    logger.info("no more")
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [one["message"] for one in found][::2] == ["a word", "failed"]
    assert "a drafter was dropped" in found[1]["message"]
    assert found[0]["n"] == 1 and found[0]["level"] == "info"
    assert "two\nlines" in found[2]["exception"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", one["time"]) for one in found)
