"""Requests drawn at random for the soak: right ones, and all kinds of wrong ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, TypeAlias

from serve_common import CHAT, COMPLETIONS

Kind: TypeAlias = Literal["whole", "stream", "gone", "malformed", "long prompt", "long body", "cut"]

SHARES: Mapping[Kind, float] = {
    "whole": 0.35,
    "stream": 0.32,
    "gone": 0.15,
    "malformed": 0.1,
    "long prompt": 0.03,
    "long body": 0.02,
    "cut": 0.03,
}
"""Of all requests. One that is "gone" is right, but nobody waits for its end; one that is "cut" is
not even sent to its end."""

STATUSES: Mapping[Kind, frozenset[int]] = {
    "whole": frozenset({200}),
    "stream": frozenset({200}),
    "gone": frozenset({200}),
    "malformed": frozenset({400, 404, 415}),
    "long prompt": frozenset({400}),
    "long body": frozenset({413}),
    "cut": frozenset(),
}
"""What may come back, beside 429."""

_SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "name": {"enum": ["red", "green", "blue"]}},
    "required": ["ok", "name"],
    "additionalProperties": False,
}
_WRONG: Sequence[Mapping[str, Any]] = (
    {"temperature": -1},
    {"temperature": "hot"},
    {"top_p": 2},
    {"n": 0},
    {"n": 10_000},
    {"max_tokens": -3},
    {"max_tokens": 10**9},
    {"seed": -1},
    {"stop": [""]},
    {"stop": [str(i) for i in range(99)]},
    {"logit_bias": {"x": 1}},
    {"logit_bias": {"1": 1000}},
    {"stream_options": {"include_usage": True}, "stream": False},
    {"speculation": {"drafter": "no such"}},
    {"speculation": {"max_draft": -1}},
    {"speculation": {"rule": "guess"}},
    {"response_format": {"type": "xml"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}},
    {"no_such_field": 1},
    {"model": "no such model"},
    {"model": None},
    {"repetition_penalty": 0},
    {"stop_token_ids": [-1]},
    {"user": 5},
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it is sent."""

    number: int
    kind: Kind
    path: str
    body: Mapping[str, Any]
    """What is asked for; its answer is known only if `is_right`."""
    raw: bytes
    content_type: str = "application/json"
    patience: int = 0
    """Events, or hundredths of a second, after which a client that goes away does so."""

    @property
    def is_right(self) -> bool:
        """Whether an answer is owed."""
        return self.kind in ("whole", "stream", "gone")


@dataclass(frozen=True)
class Drawer:
    """Draws requests: the same for the same seed."""

    model: str
    texts: Sequence[str]
    drafters: Sequence[str]
    max_tokens: int
    max_prompt_tokens: int
    max_body_bytes: int
    has_grammars: bool = True
    vocab_size: int = 200
    """Token ids from 0 up to this are in the vocabulary."""
    seed: int = 0
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "random", Random(self.seed))

    def draw(self, number: int) -> Asked:
        """Return the next request."""
        kinds = list(SHARES)
        (kind,) = self.random.choices(kinds, list(SHARES.values()))
        kind = kinds[number] if number < len(kinds) else kind  # a short run has all of them
        path = self.random.choice((CHAT, COMPLETIONS))
        body = self._body(path)
        body["stream"] = kind == "stream" or (kind == "gone" and self.random.random() < 0.5)
        if body["stream"] and self.random.random() < 0.3:
            body["stream_options"] = {"include_usage": True}
        if kind == "malformed":
            return self._malformed(number, path, body)
        if kind == "long prompt":
            path, count = COMPLETIONS, self.max_prompt_tokens + self.random.randint(1, 99)
            body = {"model": self.model, "prompt": [1] * count}
        if kind == "long body":
            path, body = COMPLETIONS, {"model": self.model, "prompt": "a" * self.max_body_bytes}
        raw = json.dumps(body).encode()
        return Asked(number, kind, path, body, raw, patience=self.random.randint(0, 12))

    def _body(self, path: str) -> dict[str, Any]:
        random = self.random
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": random.randint(1, self.max_tokens),
        }
        body |= self._chat() if path == CHAT else self._prompt()
        body |= {"temperature": random.choice((0, 0, 0.7, 1.0, 1.5)), "seed": random.randrange(99)}
        for extra in random.sample(self._extras(path), random.randint(0, 4)):
            body |= extra()
        if "prediction" in body:
            body.pop("speculation", None)
        if body["temperature"] and "speculation" in body:
            # Other rules promise the target's distribution, and not the same draw from it.
            body["speculation"].pop("rule", None)
        return body

    def _chat(self) -> dict[str, Any]:
        random, turns = self.random, list[dict[str, Any]]()
        for _ in range(random.choice((0, 0, 1))):
            turns.append({"role": "user", "content": random.choice(self.texts)})
            turns.append({"role": "assistant", "content": random.choice(("Yes.", "No, not so."))})
        last = random.choice(self.texts)
        parts = [{"type": "text", "text": last}]
        turns.append({"role": "user", "content": random.choice((last, parts))})
        return {"messages": turns}

    def _prompt(self) -> dict[str, Any]:
        random = self.random
        ids = [random.randrange(self.vocab_size) for _ in range(random.randint(1, 60))]
        one = random.choice((random.choice(self.texts), ids))
        pair = [random.choice(self.texts), random.choice(self.texts)]
        return {"prompt": random.choice((one, one, one, pair))}

    def _extras(self, path: str) -> list[Callable[[], dict[str, Any]]]:
        random = self.random
        text = random.choice(self.texts)
        few = range(3, min(200, self.vocab_size))
        extras: list[Callable[[], dict[str, Any]]] = [
            lambda: {"n": random.randint(2, 3)},
            lambda: {"stop": random.choice(("the", "\n", ["a", "e"], [". ", "?"]))},
            lambda: {"top_k": random.randint(1, 40)},
            lambda: {"top_p": random.choice((0.3, 0.9, 1.0))},
            lambda: {"min_p": random.choice((0.0, 0.05, 0.3))},
            lambda: {"presence_penalty": random.choice((-1.0, 0.5, 2.0))},
            lambda: {"frequency_penalty": random.choice((-0.5, 0.7))},
            lambda: {"repetition_penalty": random.choice((0.9, 1.3))},
            lambda: {"logit_bias": {str(random.choice(few)): random.choice((-100, -3, 4))}},
            lambda: {"ignore_eos": True},
            lambda: {"stop_token_ids": random.sample(few, 3)},
            lambda: {"user": random.choice("abcd")},
            lambda: {"prediction": {"type": "content", "content": text}},
            lambda: {"speculation": {"enabled": False}},
            lambda: {"speculation": {"max_draft": random.choice((0, 1, 4, "auto"))}},
            lambda: {"speculation": {"drafter": random.choice(("none", *self.drafters))}},
            lambda: {"speculation": {"rule": random.choice(("match", "rejection", "traversal"))}},
        ]
        if path == CHAT:
            extras += [lambda: {"logprobs": True, "top_logprobs": random.randint(0, 5)}]
        else:
            extras += [lambda: {"logprobs": random.randint(0, 5)}, lambda: {"echo": True}]
            extras += [lambda: {"echo": True, "logprobs": 2, "max_tokens": random.randint(0, 2)}]
        if self.has_grammars:
            schema = {"name": "answer", "schema": _SCHEMA}
            extras += [lambda: {"response_format": {"type": "json_object"}}]
            extras += [lambda: {"response_format": {"type": "json_schema", "json_schema": schema}}]
        return extras

    def _malformed(self, number: int, path: str, body: dict[str, Any]) -> Asked:
        random, content_type = self.random, "application/json"
        raw = json.dumps(body).encode()
        how = random.randrange(5)
        if how == 0:
            raw = raw[: random.randrange(len(raw))]
        elif how == 1:
            content_type = random.choice(("text/plain", "multipart/form-data", ""))
        elif how == 2:
            raw = random.choice((b"", b"[]", b"null", b"\xff\xfe", b'{"a":' * 5000, b"{}"))
        else:
            raw = json.dumps({**body, **random.choice(_WRONG)}).encode()
        return Asked(number, "malformed", path, body, raw, content_type)
