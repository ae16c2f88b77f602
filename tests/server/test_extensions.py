from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from serving import Running, load_tiny, serving

from outrider.decoder import Decoder
from outrider.sampling.grammar import Grammar
from outrider.sampling.params import MAX_SEED

SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ENDING: dict[str, Any] = {"stop_token_ids": [256]}  # the tiny model has no end of its own
FORMAT = {"type": "json_schema", "json_schema": {"name": "ab", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(lambda: load_tiny(max_draft=4)) as server:
        yield server


@pytest.fixture(scope="module")
def offline() -> Decoder:
    return load_tiny("none")


def content(response: Any) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


def test_an_answer_in_a_format_is_what_the_library_says_offline(
    running: Running, offline: Decoder
) -> None:
    messages = [{"role": "user", "content": "hi"}]
    grammar = Grammar.json_schema(SCHEMA).bound(offline.tokenizer)
    choices: list[dict[str, Any]] = [{}, {"temperature": 1.0, "seed": 3}]
    for options in choices:
        common = ENDING | options
        expected = offline.generate(messages, max_new_tokens=120, grammar=grammar, **common)
        answer = running.chat(response_format=FORMAT, max_tokens=120, **common)
        assert content(answer) == expected.text


def test_an_answer_in_a_format_that_allows_one_text_is_that_text(running: Running) -> None:
    schema = {"name": "one", "schema": {"enum": ["only"]}}
    one = {"type": "json_schema", "json_schema": schema}
    answer = running.chat(response_format=one, max_tokens=40, **ENDING)
    assert json.loads(content(answer)) == "only"
    assert answer.json()["choices"][0]["finish_reason"] == "stop"


def test_a_format_that_the_model_cannot_end_is_refused_by_name(running: Running) -> None:
    response = running.chat(response_format=FORMAT)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "response_format"


def test_a_format_that_asks_for_nothing_changes_nothing(running: Running) -> None:
    plain = content(running.chat(max_tokens=12))
    assert content(running.chat(max_tokens=12, response_format={"type": "text"})) == plain


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "no such type"}}},
        {"type": "json_object", "extra": 1},
    ],
)
def test_a_wrong_format_is_refused_by_name(running: Running, wrong: dict[str, Any]) -> None:
    response = running.chat(response_format=wrong)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == "response_format"


def test_what_is_predicted_is_drafted_and_counted(running: Running) -> None:
    plain = running.chat(max_tokens=60).json()
    text = plain["choices"][0]["message"]["content"]
    speculation = {"drafter": "prediction", "max_draft": 4}
    bias: dict[str, Any] = {"logit_bias": {"65": 100, "66": 50}, "max_tokens": 60}
    expected = running.chat(**bias).json()["choices"][0]["message"]["content"]
    told = running.chat(
        prediction={"type": "content", "content": expected}, speculation=speculation, **bias
    ).json()
    assert told["choices"][0]["message"]["content"] == expected
    details = told["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] > 20
    assert details["accepted_prediction_tokens"] == told["usage"]["speculation"]["accepted"]
    wrong = running.chat(
        prediction={"type": "content", "content": [{"type": "text", "text": "wrong " * 20}]},
        speculation=speculation,
        max_tokens=60,
    ).json()
    assert wrong["choices"][0]["message"]["content"] == text
    details = wrong["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] <= details["rejected_prediction_tokens"]


@pytest.mark.parametrize(
    ("speculation", "param"),
    [
        ({"enabled": False}, "prediction"),
        ({"drafter": "suffix"}, "prediction"),
        ({"max_draft": 0}, "prediction"),
        ({"drafter": "none"}, "prediction"),
    ],
)
def test_a_prediction_that_may_not_be_drafted_is_refused(
    running: Running, speculation: dict[str, Any], param: str
) -> None:
    predicted = {"type": "content", "content": "a"}
    response = running.chat(prediction=predicted, speculation=speculation)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize(
    "speculation",
    [
        {"enabled": False},
        {"drafter": "none"},
        {"max_draft": 0},
        {"drafter": "suffix", "max_draft": 3},
        {"drafter": "suffix,ngram", "rule": "match"},
        {"max_draft": "auto"},
    ],
)
def test_no_way_to_speculate_changes_the_text(
    running: Running, speculation: dict[str, Any]
) -> None:
    fields: dict[str, Any] = {"max_tokens": 40, "temperature": 0.8, "seed": 1}
    expected = content(running.chat("ababababab", **fields))
    answer = running.chat("ababababab", speculation=speculation, **fields)
    assert content(answer) == expected
    if speculation.get("drafter") == "none" or speculation.get("max_draft") == 0:
        assert answer.json()["usage"]["speculation"]["proposed"] == 0


def test_a_request_may_have_its_drafts_verified_by_another_rule(running: Running) -> None:
    answer = running.chat("ababab", max_tokens=30, speculation={"rule": "rejection"})
    greedy = running.chat("ababab", max_tokens=30)
    assert content(answer) == content(greedy)


def test_a_prompt_that_was_read_before_is_not_read_again(running: Running) -> None:
    prompt = "a conversation that goes on for some time"
    first = running.chat(prompt, max_tokens=4).json()
    again = running.chat(prompt, max_tokens=4).json()
    assert again["choices"] == first["choices"]
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == again["usage"]["prompt_tokens"] - 1


def test_the_largest_seed_is_a_seed(running: Running) -> None:
    assert running.chat(seed=MAX_SEED, n=2, temperature=1, max_tokens=2).status_code == 200
