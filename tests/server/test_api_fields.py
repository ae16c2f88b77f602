from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from serving import CHAT, COMPLETIONS, MODEL, Running, load_tiny, serving

from outrider.decoder import Decoder
from outrider.server.bodies import Chat, Completion
from outrider.server.refusals import CHAT as REFUSED_IN_CHAT
from outrider.server.refusals import COMPLETION as REFUSED_IN_COMPLETION

MESSAGES = [{"role": "user", "content": "hi"}]
LENGTH = 24

SAMPLED: dict[str, Any] = {"temperature": 0.9, "seed": 11}
HONOURED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "temperature": ({"temperature": 1.4, "seed": 3}, {"temperature": 1.4, "seed": 3}),
    "top_p": (SAMPLED | {"top_p": 0.05}, SAMPLED | {"top_p": 0.05}),
    "top_k": (SAMPLED | {"top_k": 2}, SAMPLED | {"top_k": 2}),
    "min_p": (SAMPLED | {"min_p": 0.95}, SAMPLED | {"min_p": 0.95}),
    "seed": (SAMPLED | {"seed": 12}, SAMPLED | {"seed": 12}),
    "presence_penalty": ({"presence_penalty": 1.5}, {"presence_penalty": 1.5}),
    "frequency_penalty": ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}),
    "repetition_penalty": ({"repetition_penalty": 1.8}, {"repetition_penalty": 1.8}),
    "logit_bias": ({"logit_bias": {"65": 100}}, {"logit_bias": {65: 100.0}}),
    "max_tokens": ({"max_tokens": 5}, {"max_new_tokens": 5}),
    "max_completion_tokens": ({"max_completion_tokens": 5}, {"max_new_tokens": 5}),
}
"""Field -> a body that uses it, and the same as options of `Decoder.generate`."""


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def offline() -> Decoder:
    return load_tiny("none")


def parameters(module: Any) -> set[str]:
    return set(module.CompletionCreateParamsBase.__annotations__)


def test_every_field_of_the_official_client_is_known() -> None:
    assert parameters(chat_create_params) <= set(Chat.model_fields)
    assert parameters(completion_create_params) <= set(Completion.model_fields)


def test_every_refused_field_is_one_of_the_official_client() -> None:
    assert set(REFUSED_IN_CHAT) <= parameters(chat_create_params)
    assert set(REFUSED_IN_COMPLETION) <= parameters(completion_create_params)


@pytest.mark.parametrize("field", sorted(REFUSED_IN_CHAT))
def test_a_field_that_is_not_supported_is_refused_by_name(running: Running, field: str) -> None:
    response = running.chat(**{field: {"asks": "for something"}})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == field and field in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("field", sorted(REFUSED_IN_CHAT))
def test_a_refused_field_may_say_that_it_asks_for_nothing(running: Running, field: str) -> None:
    for value in (None, *REFUSED_IN_CHAT[field]):
        assert running.chat(max_tokens=1, **{field: value}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"foo": 1}, "foo"),
        (CHAT, {"messages": [{"role": "user", "content": "a", "foo": 1}]}, "messages[0].foo"),
        (CHAT, {"messages": [{"role": "user", "content": "a", "name": "b"}]}, "messages[0].name"),
        (CHAT, {"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
        (CHAT, {"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"logprobs": 3}, "logprobs"),
        (CHAT, {"top_logprobs": 2}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"max_tokens": 2, "max_completion_tokens": 2}, "max_tokens"),
        (CHAT, {"max_completion_tokens": 10**6}, "max_completion_tokens"),
        (CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
        (CHAT, {"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        (CHAT, {"temperature": -1}, "temperature"),
        (CHAT, {"temperature": "hot"}, "temperature"),
        (CHAT, {"top_p": 2}, "top_p"),
        (CHAT, {"presence_penalty": 3}, "presence_penalty"),
        (CHAT, {"logit_bias": {"x": 1}}, "logit_bias"),
        (CHAT, {"logit_bias": {"5": -200}}, "logit_bias"),
        (CHAT, {"logit_bias": {"999999": 1}}, "logit_bias"),
        (CHAT, {"seed": -1}, "seed"),
        (CHAT, {"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
        (CHAT, {"n": 0}, "n"),
        (CHAT, {"n": 1000}, "n"),
        (CHAT, {"stop": ["a", 5]}, "stop"),
        (CHAT, {"stop": [str(i) for i in range(17)]}, "stop"),
        (CHAT, {"prediction": {"type": "file", "content": "a"}}, "prediction.type"),
        (CHAT, {"speculation": {"drafter": "oracle"}}, "speculation.drafter"),
        (CHAT, {"speculation": {"max_draft": "far"}}, "speculation.max_draft"),
        (CHAT, {"speculation": {"rule": "typical"}}, "speculation.rule"),
        (CHAT, {"speculation": {"details": True}}, "speculation.details"),
        (COMPLETIONS, {"prompt": []}, "prompt"),
        (COMPLETIONS, {"prompt": ""}, "prompt"),
        (COMPLETIONS, {"prompt": [[1], "a"]}, "prompt"),
        (COMPLETIONS, {"prompt": [100_000]}, "prompt"),
        (COMPLETIONS, {"prompt": ["a"] * 65, "n": 2}, "n"),
        (COMPLETIONS, {"best_of": 2}, "best_of"),
        (COMPLETIONS, {"suffix": "end"}, "suffix"),
        (COMPLETIONS, {"logprobs": 21}, "logprobs"),
        (COMPLETIONS, {"messages": MESSAGES}, "messages"),
    ],
)
def test_a_wrong_value_is_refused_by_name(
    running: Running, path: str, body: dict[str, Any], param: str | None
) -> None:
    base = {"prompt": "a"} if path == COMPLETIONS else {"messages": MESSAGES}
    response = running.http.post(path, json={"model": MODEL} | base | body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("field", sorted(HONOURED))
def test_an_option_does_what_it_does_offline(
    running: Running, offline: Decoder, field: str
) -> None:
    """SERVE-2."""
    body, options = HONOURED[field]
    asked: dict[str, Any] = ({} if "max" in field else {"max_tokens": LENGTH}) | body
    answer = running.chat(**asked)
    expected = offline.generate(MESSAGES, **{"max_new_tokens": LENGTH} | options)
    assert answer.json()["choices"][0]["message"]["content"] == expected.text
    assert answer.json()["usage"]["completion_tokens"] == len(expected.token_ids)
    without = {key: value for key, value in body.items() if key != field}
    if field != "seed":
        plain = running.chat(**{"max_tokens": LENGTH} | without).json()
        assert plain["choices"][0]["message"]["content"] != expected.text


def test_stop_texts_and_ids_end_an_answer_before_them(running: Running, offline: Decoder) -> None:
    whole = offline.generate(MESSAGES, max_new_tokens=LENGTH)
    stop_id = whole.token_ids[6]
    by_id = running.chat(max_tokens=LENGTH, stop_token_ids=[stop_id]).json()["choices"][0]
    expected = offline.generate(MESSAGES, max_new_tokens=LENGTH, stop_token_ids=[stop_id])
    assert by_id["message"]["content"] == expected.text
    assert by_id["finish_reason"] == "stop"
    letter = next(c for c in whole.text if c.isascii() and c.isprintable())
    for stop in (letter, ["never here", letter]):
        choice = running.chat(max_tokens=LENGTH, stop=stop).json()["choices"][0]
        assert choice["message"]["content"] == whole.text.split(letter)[0]
        assert choice["finish_reason"] == "stop"


def test_n_answers_are_those_of_the_seeds_that_follow(running: Running, offline: Decoder) -> None:
    answer = running.chat(n=3, max_tokens=LENGTH, **SAMPLED).json()
    expected = offline.generate(MESSAGES, n=3, max_new_tokens=LENGTH, **SAMPLED)
    said = [choice["message"]["content"] for choice in answer["choices"]]
    assert said == [choice.text for choice in expected.choices]
    assert len(set(said)) == 3
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["prompt_tokens"] == len(expected.prompt_ids)
    assert answer["usage"]["completion_tokens"] == 3 * LENGTH


@pytest.mark.parametrize(
    ("prompt", "offline_prompts"),
    [
        ("ab", ["ab"]),
        (["ab", "xyz"], ["ab", "xyz"]),
        ([70, 71, 72], [[70, 71, 72]]),
        ([[70, 71], [72]], [[70, 71], [72]]),
    ],
)
def test_prompts_may_be_texts_or_ids_one_or_several(
    running: Running, offline: Decoder, prompt: Any, offline_prompts: list[Any]
) -> None:
    answer = running.complete(prompt, n=2, temperature=1, seed=4, max_tokens=6).json()
    results = [
        offline.generate(one, n=2, temperature=1, seed=4, max_new_tokens=6)
        for one in offline_prompts
    ]
    expected = [choice.text for result in results for choice in result.choices]
    assert [choice["text"] for choice in answer["choices"]] == expected
    lengths = sum(len(result.prompt_ids) for result in results)
    assert answer["usage"]["prompt_tokens"] == lengths


def test_a_completion_has_sixteen_tokens_unless_it_says_otherwise(running: Running) -> None:
    assert running.complete().json()["usage"]["completion_tokens"] == 16


def test_a_chat_goes_on_to_the_end_of_the_context_unless_it_says_otherwise(
    running: Running, offline: Decoder
) -> None:
    answer = running.chat().json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == offline.engine.target.max_positions


def test_echo_puts_the_prompt_before_the_answer(running: Running, offline: Decoder) -> None:
    expected = [offline.generate(p, max_new_tokens=4).text for p in ("ab", "cd")]
    answer = running.complete(["ab", "cd"], echo=True, max_tokens=4).json()
    assert [c["text"] for c in answer["choices"]] == ["ab" + expected[0], "cd" + expected[1]]


def test_content_may_come_in_parts_of_text_alone(running: Running) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    whole, joined = running.chat("hi", max_tokens=8), running.chat(parts, max_tokens=8)
    assert whole.json()["choices"] == joined.json()["choices"]
    image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    refused = running.chat(image)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "messages[0].content"


def test_messages_that_the_template_refuses_are_refused_by_name(running: Running) -> None:
    response = running.chat("refuse me")
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "messages" and "not this one" in error["message"]


def test_a_developer_speaks_as_the_system_does(running: Running) -> None:
    def say(role: str) -> Any:
        messages = [{"role": role, "content": "be brief"}, *MESSAGES]
        body = {"model": MODEL, "messages": messages, "max_tokens": 8}
        return running.http.post(CHAT, json=body).json()["choices"]

    assert say("developer") == say("system") != say("user")


def test_another_model_is_not_found(running: Running) -> None:
    response = running.chat(model="other")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


def test_a_prompt_that_leaves_no_room_is_refused_by_its_length(running: Running) -> None:
    response = running.chat("a" * 400)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
