from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import CHAT, COMPLETIONS, MODEL, Running, load_tiny, serving

from outrider.server.bodies import Chat, Completion

ALLOWED = {200, 400, 404}
FEW = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["none", "auto", "text", "user", "json_object", 1, 0, -1, 2**63])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6) | st.just("type"), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(load_tiny, max_new_tokens=6) as server:
        yield server


def bodies(kind: Any, required: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return bodies that are right but for a few fields."""
    names = st.sampled_from([*sorted(set(kind.model_fields) - {"stream"}), "unknown"])
    spoilt = st.dictionaries(names, JSON, max_size=3)
    return spoilt.map(lambda fields: required | fields)


def post(running: Running, path: str, body: Any) -> None:
    # Python's own writer has NaN and infinities, which JSON does not.
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    response = running.http.post(path, content=content, headers=headers)
    assert response.status_code in ALLOWED, (response.status_code, response.text, content)
    if response.status_code != 200:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@FEW
@given(body=bodies(Chat, {"model": MODEL, "messages": [{"role": "user", "content": "a"}]}))
def test_no_chat_body_is_a_fault_of_the_server(running: Running, body: Any) -> None:
    post(running, CHAT, body)


@FEW
@given(body=bodies(Completion, {"model": MODEL, "prompt": "a"}))
def test_no_completion_body_is_a_fault_of_the_server(running: Running, body: Any) -> None:
    post(running, COMPLETIONS, body)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b'"text"',
        b'{"model":"tiny","prompt":' + b"[" * 50_000,
        b'{"model":"tiny","prompt":"\\ud800"}',
        b'{"model":"tiny","prompt":"a","seed":' + b"9" * 5000 + b"}",
        b'{"model":"tiny","prompt":"a","temperature":1e999}',
        b'{"model":"tiny","prompt":"a","temperature":NaN}',
        b'{"model":"tiny","prompt":"\\u0000"}',
        b'{"model":"tiny","prompt":[9223372036854775808]}',
        b'{"model":"tiny","prompt":"a","logit_bias":{"-1":1}}',
        b'{"model":"tiny","prompt":"a","logit_bias":{"\xc2\xb2":1}}',
        b'{"model":"tiny","prompt":"a","response_format":{"type":"json_schema"}}',
        b'{"model":"tiny","prompt":"a","response_format":{"type":"grammar"}}',
        b'{"model":"tiny","prompt":"a","stop_token_ids":[1e400]}',
    ],
    ids=range(18),
)
def test_no_bytes_are_a_fault_of_the_server(running: Running, raw: bytes) -> None:
    post(running, COMPLETIONS, raw)
    post(running, CHAT, raw)


def test_nothing_is_left_over_after_all_that(running: Running) -> None:
    running.wait_idle()
    assert running.http.get("/health").status_code == 200
