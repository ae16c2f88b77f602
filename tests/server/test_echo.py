"""Prompts that are echoed with log-probabilities, as those who score texts ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from serving import COMPLETIONS, END, MODEL, Running, byte_level_tokenizer, load_tiny, serving
from stream_reading import events

from outrider.decoder import Decoder
from outrider.server.echo import echo_of
from outrider.server.errors import ApiError

TOP = 3
TEXT = "A text, längere als ein Stück: " + "word " * 20


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(prefill_rows=24) as server:
        yield server


@pytest.fixture(scope="module")
def offline() -> Decoder:
    return load_tiny("none")


def by_the_model(offline: Decoder, ids: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return the log-probability of each token but the first, and the best one in its place."""
    model: Any = offline.loaded.model
    with torch.inference_mode():
        rows = model(input_ids=torch.tensor([list(ids)])).logits[0].log_softmax(-1)[:-1]
    chosen = [row[token].item() for row, token in zip(rows, ids[1:], strict=True)]
    return chosen, rows.max(dim=-1).values.tolist()


def choice(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()["choices"][0]
    return found


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("as_ids", [True, False])
def test_a_scored_prompt_has_the_models_own_logprobs(
    running: Running, offline: Decoder, as_ids: bool, enabled: bool
) -> None:
    """The request is the one that lm-eval's `local-completions` sends for a log-likelihood."""
    ids = list(offline.encode(TEXT))
    response = running.complete(
        [ids] if as_ids else TEXT,
        temperature=0,
        max_tokens=1,
        logprobs=1,
        seed=1234,
        echo=True,
        speculation={"enabled": enabled},
    )
    found = choice(response)
    logprobs = found["logprobs"]
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    chosen, best = by_the_model(offline, ids)
    assert logprobs["token_logprobs"][1:-1] == pytest.approx(chosen)
    assert [max(top.values()) for top in logprobs["top_logprobs"][1:-1]] == pytest.approx(best)
    assert {len(values) for values in logprobs.values()} == {len(ids) + 1}
    assert found["text"].startswith(TEXT) and response.json()["usage"]["completion_tokens"] == 1


def test_tokens_of_an_echoed_prompt_say_where_in_the_text_they_begin(running: Running) -> None:
    for prompt in ("word für word", f"a{END}b{END}"):
        found = choice(running.complete(prompt, echo=True, logprobs=0, max_tokens=2))
        starts, tokens = found["logprobs"]["text_offset"], found["logprobs"]["tokens"]
        assert starts == sorted(starts)
        assert found["text"][: starts[-2]] == prompt
        for start, token in zip(starts[:-2], tokens[:-2], strict=True):
            # A letter of two bytes is two tokens, neither of which is a letter.
            assert token == "\ufffd" or found["text"].startswith(token, start)


def test_what_comes_after_a_scored_prompt_is_what_comes_without(
    running: Running, offline: Decoder
) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "logprobs": TOP, "temperature": 0.9, "seed": 5}
    count = len(offline.encode(TEXT))
    plain = running.complete(TEXT, n=2, **options).json()["choices"]
    echoed = running.complete(TEXT, n=2, echo=True, **options).json()["choices"]
    for one, other in zip(plain, echoed, strict=True):
        assert other["text"] == TEXT + one["text"]
        after = {name: values[count:] for name, values in other["logprobs"].items()}
        assert after["tokens"] == one["logprobs"]["tokens"]
        assert after["token_logprobs"] == pytest.approx(one["logprobs"]["token_logprobs"])
        begins = [offset - len(TEXT) for offset in after["text_offset"]]
        assert begins == one["logprobs"]["text_offset"]


def test_a_request_for_no_token_gets_its_prompt_and_nothing_else(running: Running) -> None:
    odd: dict[str, Any] = {"logit_bias": {"3": -100}, "temperature": 2, "n": 2}
    asked: list[dict[str, Any]] = [{}, {"logprobs": TOP}, odd]
    for options in asked:
        response = running.complete([[65, 66, 67], [68]], echo=True, max_tokens=0, **options)
        assert response.status_code == 200, response.text
        answer = response.json()
        assert [c["text"] for c in answer["choices"]][:: options.get("n", 1)] == ["bcd", "e"]
        assert answer["usage"]["completion_tokens"] == 0
        assert answer["usage"]["prompt_tokens"] == 4
        for found in answer["choices"]:
            assert found["finish_reason"] == "length"
        if "logprobs" in options:
            first, second = (c["logprobs"] for c in answer["choices"])
            assert [len(values) for values in first.values()] == [3] * 4
            assert second["token_logprobs"] == [None] and second["text_offset"] == [0]


def test_a_stream_tells_of_a_scored_prompt_what_a_whole_answer_does(running: Running) -> None:
    for most in (0, 5):
        options: dict[str, Any] = {"echo": True, "logprobs": TOP, "max_tokens": most, "n": 2}
        whole = running.complete(["abc", "de"], **options).json()
        body = {"model": MODEL, "prompt": ["abc", "de"], "stream": True} | options
        with running.http.stream("POST", COMPLETIONS, json=body) as stream:
            chunks = events(stream.iter_lines())
        for expected in whole["choices"]:
            parts = [
                c for chunk in chunks for c in chunk["choices"] if c["index"] == expected["index"]
            ]
            assert "".join(part["text"] for part in parts) == expected["text"]
            for name, values in expected["logprobs"].items():
                assert [v for part in parts for v in part["logprobs"][name]] == values
            assert parts[-1]["finish_reason"] == expected["finish_reason"]


def test_scored_prompts_leave_caches_as_useful_as_others(running: Running) -> None:
    prompt = "once upon a time there was a cache"
    choice(running.complete(prompt, echo=True, logprobs=0, max_tokens=2))
    again = running.complete(prompt, max_tokens=2).json()["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == len(prompt) - 1
    scored = running.complete(prompt, echo=True, logprobs=0, max_tokens=2).json()["usage"]
    assert scored["prompt_tokens_details"]["cached_tokens"] == 0
    running.wait_idle()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 0, "logprobs": 1}, "max_tokens"),
        ({"max_tokens": 0, "echo": True, "min_tokens": 1}, "min_tokens"),
        ({"max_tokens": -1, "echo": True}, "max_tokens"),
        ({"echo": True, "logprobs": 21}, "logprobs"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    running: Running, fields: dict[str, Any], param: str
) -> None:
    response = running.complete(**fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_a_chat_cannot_ask_for_no_token(running: Running) -> None:
    response = running.chat(max_tokens=0)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "max_tokens"


def test_an_echo_needs_a_tokenizer_and_shows_tokens_that_a_text_does_not() -> None:
    with pytest.raises(ApiError, match="tokenizer"):
        echo_of((1, 2), (1, 2), None)
    tokenizer = byte_level_tokenizer()
    end, *letters = tokenizer.encode(f"{END}ab")
    # A tokenizer that puts a token in front of a text has it among the tokens, not in the text.
    before = echo_of("ab", (end, *letters), tokenizer)
    assert (before.text, before.offsets) == ("ab", (0, 0, 1))
    shown = echo_of((end, *letters), (end, *letters), tokenizer)
    assert (shown.text, shown.offsets) == (f"{END}ab", (0, len(END), len(END) + 1))
