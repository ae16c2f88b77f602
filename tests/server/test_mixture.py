from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from serving import CHAT, COMPLETIONS, MODEL, Running, load_tiny, serving
from stream_reading import events, texts

from outrider.decoder import Decoder

WORDS = ("ab", "abcabcabc", "x", "a longer prompt, of many letters" * 2)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    def load() -> Decoder:
        return load_tiny(max_batch=4, max_draft=4)

    with serving(load, prefill_rows=16, max_prefixes=3) as server:
        yield server


@dataclass(frozen=True)
class Asked:
    """A request drawn at random."""

    path: str
    body: dict[str, Any]
    is_left: bool
    is_wrong: bool

    @classmethod
    def draw(cls, random: Random) -> Asked:
        path = random.choice([CHAT, COMPLETIONS])
        text = random.choice(WORDS)
        body: dict[str, Any] = {"model": MODEL, "max_tokens": random.randint(1, 20)}
        body |= {"prompt": text} if path == COMPLETIONS else {"messages": message(text)}
        body |= {"temperature": random.choice([0, 0.7, 1.5]), "seed": random.randrange(99)}
        extras: list[dict[str, Any]] = [
            {"n": random.randint(2, 3)},
            {"stop": random.choice(["a", "bc", "\n"])},
            {"top_k": 5, "presence_penalty": 0.5},
            {"speculation": random.choice([{"enabled": False}, {"max_draft": 2}])},
            {"prediction": {"type": "content", "content": text}},
            {"repetition_penalty": 1.3, "min_p": 0.05},
        ]
        for extra in random.sample(extras, random.randint(0, 3)):
            body |= extra
        if "prediction" in body:
            body.pop("speculation", None)
        if is_wrong := random.random() < 0.15:
            body |= random.choice([{"foo": 1}, {"temperature": -1}, {"n": "two"}])
        body["stream"] = random.random() < 0.5
        return cls(path, body, random.random() < 0.25, is_wrong)


def message(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def answer(running: Running, asked: Asked) -> dict[int, str] | int | None:
    """Return the texts of the choices, the status of an error, or None for a client that left."""
    if not asked.body["stream"]:
        response = running.http.post(asked.path, json=asked.body)
        if response.status_code != 200:
            return response.status_code
        return {c["index"]: said(c) for c in response.json()["choices"]}
    with running.http.stream("POST", asked.path, json=asked.body) as stream:
        if stream.status_code != 200:
            return stream.status_code
        if asked.is_left:
            next(stream.iter_lines())
            return None
        return texts(events(stream.iter_lines()))


def said(choice: dict[str, Any]) -> str:
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def expected(offline: Decoder, asked: Asked) -> dict[int, str]:
    body = dict(asked.body)
    prompt = body.pop("prompt", None) or body.pop("messages")
    body["max_new_tokens"] = body.pop("max_tokens")
    for name in ("model", "stream", "speculation", "prediction"):
        body.pop(name, None)
    result = offline.generate(prompt, **body)
    return {i: choice.text for i, choice in enumerate(result.choices or (result,))}


def test_whatever_runs_beside_it_an_answer_is_the_one_it_has_alone(running: Running) -> None:
    random = Random(20)
    requests = [Asked.draw(random) for _ in range(40)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda asked: answer(running, asked), requests))
    offline = load_tiny("none")
    for asked, found in zip(requests, answers, strict=True):
        if asked.is_wrong:
            assert found == 400, asked
        elif found is not None:
            assert found == expected(offline, asked), asked
    assert sum(found is None for found in answers) > 2
    running.wait_idle()
    snapshot = running.service.snapshot
    assert snapshot is not None and snapshot.failed == 0
    assert snapshot.reused_tokens > 0 and snapshot.accepted > 0


def test_requests_of_different_users_wait_in_lines_of_their_own(running: Running) -> None:
    scheduler: Any = running.service.worker.scheduler
    submit, clients = scheduler.submit, []

    def noted(request: Any, *, client: Any) -> Any:
        clients.append(client)
        return submit(request, client=client)

    scheduler.submit = noted
    try:
        for fields in ({"user": "a"}, {"user": "b"}, {}, {"safety_identifier": "c"}):
            assert running.chat(max_tokens=1, **fields).status_code == 200
    finally:
        scheduler.submit = submit
    assert [user for _, user in clients] == ["a", "b", None, "c"]
    assert {sender for sender, _ in clients} == {"127.0.0.1"}
