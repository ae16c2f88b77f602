from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, NotFoundError
from serving import MODEL, Running, load_tiny, serving

from outrider.decoder import Decoder

MESSAGES: Any = [{"role": "user", "content": "hi"}]
SAMPLED: Any = {"temperature": 1.1, "seed": 5}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def offline() -> Decoder:
    return load_tiny("none")


def test_the_client_lists_the_model_and_what_it_can_do(running: Running) -> None:
    with running.openai() as client:
        (model,) = client.models.list().data
        assert model.id == MODEL == client.models.retrieve(MODEL).id
        assert model.object == "model"
        extras: Any = model.model_extra
        assert extras["outrider"]["drafters"] == ["suffix", "ngram", "prediction"]
        with pytest.raises(NotFoundError):
            client.models.retrieve("a/b")


def test_a_chat_is_what_the_library_says_offline(running: Running, offline: Decoder) -> None:
    expected = offline.generate(MESSAGES, max_new_tokens=20, logprobs=3, **SAMPLED)
    with running.openai() as client:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            max_completion_tokens=20,
            logprobs=True,
            top_logprobs=3,
            **SAMPLED,
        )
    assert answer.object == "chat.completion"
    (choice,) = answer.choices
    assert choice.message.content == expected.text
    assert choice.message.role == "assistant"
    assert choice.finish_reason == expected.finish_reason == "length"
    assert choice.logprobs is not None and choice.logprobs.content is not None
    assert expected.logprobs is not None
    found = choice.logprobs.content
    assert [e.logprob for e in found] == pytest.approx([r.chosen for r in expected.logprobs])
    assert [len(e.top_logprobs) for e in found] == [3] * 20
    # What a token is in bytes adds up, even where its characters do not.
    spelt = bytes(byte for entry in found for byte in entry.bytes or [])
    assert spelt.decode(errors="replace").startswith(expected.text.rstrip("\ufffd"))
    assert answer.usage is not None and answer.usage.completion_tokens == 20
    assert answer.usage.prompt_tokens == len(expected.prompt_ids)


def test_a_streamed_chat_is_the_whole_one(running: Running, offline: Decoder) -> None:
    expected = offline.generate(MESSAGES, n=2, max_new_tokens=20, **SAMPLED)
    texts, reasons, roles = ["", ""], ["", ""], [set[str](), set[str]()]
    with (
        running.openai() as client,
        client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            max_tokens=20,
            n=2,
            stream=True,
            stream_options={"include_usage": True},
            **SAMPLED,
        ) as stream,
    ):
        chunks = list(stream)
    for chunk in chunks[:-1]:
        assert chunk.object == "chat.completion.chunk" and chunk.id == chunks[0].id
        assert chunk.usage is None
        (choice,) = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        reasons[choice.index] = choice.finish_reason or reasons[choice.index]
        if choice.delta.role:
            roles[choice.index].add(choice.delta.role)
    assert texts == [one.text for one in expected.choices]
    assert reasons == ["length", "length"]
    assert roles == [{"assistant"}, {"assistant"}]
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 40


def test_a_completion_is_what_the_library_says_offline(running: Running, offline: Decoder) -> None:
    expected = offline.generate("ab", max_new_tokens=12, logprobs=2, **SAMPLED)
    with running.openai() as client:
        answer = client.completions.create(
            model=MODEL, prompt="ab", max_tokens=12, logprobs=2, **SAMPLED
        )
        with client.completions.create(
            model=MODEL, prompt="ab", max_tokens=12, stream=True, **SAMPLED
        ) as stream:
            streamed = "".join(chunk.choices[0].text for chunk in stream)
    assert answer.object == "text_completion"
    (choice,) = answer.choices
    assert choice.text == streamed == expected.text
    logprobs = choice.logprobs
    assert logprobs is not None and expected.logprobs is not None
    assert logprobs.token_logprobs == pytest.approx([r.chosen for r in expected.logprobs])
    assert logprobs.tokens is not None and len(logprobs.tokens) == 12
    assert logprobs.text_offset is not None and logprobs.text_offset[0] == 0
    assert logprobs.text_offset == sorted(logprobs.text_offset)
    assert logprobs.top_logprobs is not None
    for token, top in zip(logprobs.tokens, logprobs.top_logprobs, strict=True):
        assert token in top


def test_asynchronous_clients_get_their_own_answers(running: Running, offline: Decoder) -> None:
    prompts = [f"number {i}" for i in range(12)]

    async def ask_all() -> list[str]:
        async with AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none") as client:

            async def ask(place: int, prompt: str) -> str:
                options: Any = {"max_tokens": 10, "temperature": 1, "seed": place}
                if place % 2:
                    whole = await client.completions.create(model=MODEL, prompt=prompt, **options)
                    return str(whole.choices[0].text)
                stream = await client.completions.create(
                    model=MODEL, prompt=prompt, stream=True, **options
                )
                return "".join([chunk.choices[0].text async for chunk in stream])

            return await asyncio.gather(*(ask(i, prompt) for i, prompt in enumerate(prompts)))

    expected = [
        offline.generate(prompt, max_new_tokens=10, temperature=1, seed=i).text
        for i, prompt in enumerate(prompts)
    ]
    assert asyncio.run(ask_all()) == expected
    running.wait_idle()


def test_errors_are_those_the_client_knows(running: Running) -> None:
    with running.openai() as client:
        with pytest.raises(BadRequestError) as caught:
            client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=-1)
        assert caught.value.param == "temperature"
        assert caught.value.request_id
        with pytest.raises(NotFoundError):
            client.chat.completions.create(model="other", messages=MESSAGES)


def test_the_client_logs_in_with_any_of_the_keys() -> None:
    with serving(api_keys=("one", "two")) as running:
        for key in ("one", "two"):
            with running.openai(api_key=key) as client:
                assert client.models.list().data
        for key in ("three", "on", "one1"):
            with (
                running.openai(api_key=key) as client,
                pytest.raises(AuthenticationError) as caught,
            ):
                client.completions.create(model=MODEL, prompt="a")
            assert caught.value.code == "invalid_api_key"
        assert running.complete().status_code == 401
        # Those who watch the server need none.
        for path in ("/health", "/ready", "/metrics", "/"):
            assert running.http.get(path).status_code == 200
