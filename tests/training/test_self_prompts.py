from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from outrider import Decoder, SamplingParams, load
from outrider.errors import OptionError
from outrider.training.self_prompts import (
    SelfPrompt,
    UserTurn,
    self_prompts,
    write_self_prompts,
)
from outrider.training.writing import seed_of, write_all
from support.files import word_tokenizer
from support.tiny import shared_model

TEMPLATE = (
    "{% for m in messages %}w60 w1 {{ m.content }} w62 {% endfor %}"
    "{% if add_generation_prompt %}w61{% endif %}"
)
OPENING = (60, 1)
PARAMS = SamplingParams(temperature=4.0, max_new_tokens=8, logit_bias={62: 10.0}, seed=5)


def chat_tokenizer(
    template: str | None = TEMPLATE, special: tuple[str, ...] = ("w60", "w62")
) -> Any:
    tokenizer: Any = word_tokenizer()
    tokenizer.add_tokens([AddedToken(word, special=True) for word in special])
    tokenizer.chat_template = template
    return tokenizer


def decoder_of(tokenizer: Any, max_batch: int = 4) -> Decoder:
    return load(shared_model(), tokenizer=tokenizer, max_batch=max_batch)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return decoder_of(chat_tokenizer())


@pytest.fixture(scope="module")
def written(decoder: Decoder) -> list[SelfPrompt]:
    return list(self_prompts(decoder, 30, params=PARAMS))


def test_a_template_tells_where_the_user_speaks() -> None:
    assert UserTurn.of(chat_tokenizer()) == UserTurn(OPENING, (62,), ())
    plain = chat_tokenizer("w5 {{ messages[0].content }}\nw6 w60 w7\nw8")
    assert UserTurn.of(plain) == UserTurn((5,), (), ("w6",))


def test_a_users_text_brings_its_own_first_space() -> None:
    letters = sorted(ByteLevel.alphabet())
    backend = Tokenizer(BPE({letter: token for token, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    make: Any = PreTrainedTokenizerFast  # its constructor is untyped
    tokenizer = make(tokenizer_object=backend)
    tokenizer.chat_template = "[A] {{ messages[0].content }} [B] "
    turn = UserTurn.of(tokenizer)
    assert "".join(letters[token] for token in turn.opening) == "[A]"
    assert turn.stop == ("[B]",)


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (None, "the model has no chat template"),
        (chat_tokenizer(None), "the model has no chat template"),
        (chat_tokenizer("w5 w6"), "holds the user's message 0 times, expected once"),
        (chat_tokenizer("w5 {{ messages[0].content * 2 }} w6"), "message 2 times"),
        (chat_tokenizer("w5 {{ messages[0].content }} "), "has nothing after the user's message"),
        (chat_tokenizer("{{ messages[0].content }} w6"), "has nothing before the user's message"),
    ],
)
def test_a_template_without_a_users_turn_is_refused(tokenizer: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        UserTurn.of(tokenizer)


def test_each_prompt_is_the_text_its_own_seed_draws(
    decoder: Decoder, written: list[SelfPrompt]
) -> None:
    """And what is missing was empty, cut off, held a special token, or had come before."""
    found = {prompt.index: prompt for prompt in written}
    reasons: Counter[str] = Counter()
    seen: set[str] = set()
    for index in range(written[-1].index + 1):
        seed = seed_of(5, index)
        alone = decoder.generate(OPENING, params=PARAMS, seed=seed, stop_token_ids=(62,))
        *body, _ = alone.token_ids
        text = " ".join(f"w{token}" for token in body)
        if alone.finish_reason == "length":
            reasons["cut off"] += 1
        elif not body:
            reasons["empty"] += 1
        elif {0, 60, 62} & set(body):
            reasons["special"] += 1
        elif text in seen:
            reasons["again"] += 1
        else:
            seen.add(text)
            assert found.pop(index) == SelfPrompt(index, text, (*OPENING, *body, 62, 61))
    assert not found
    assert len(written) == 30
    assert reasons.keys() == {"cut off", "empty", "special", "again"}


def test_prompts_do_not_depend_on_the_batch(written: list[SelfPrompt]) -> None:
    assert list(self_prompts(decoder_of(chat_tokenizer(), 1), 9, params=PARAMS)) == written[:9]


def test_another_seed_writes_other_prompts(decoder: Decoder, written: list[SelfPrompt]) -> None:
    others = self_prompts(decoder, 9, params=PARAMS.with_options(seed=6))
    assert [prompt.ids for prompt in others] != [prompt.ids for prompt in written[:9]]


def test_a_turn_may_end_with_words() -> None:
    """A template without special tokens: the turn ends where its own text says so."""
    template = "w60 w1 {{ messages[0].content }} w62\n{% if add_generation_prompt %}w61{% endif %}"
    worded = decoder_of(chat_tokenizer(template, special=()))
    for prompt in self_prompts(worded, 5, params=PARAMS):
        body = prompt.ids[2:-2]
        assert prompt.ids == (*OPENING, *body, 62, 61)
        assert body and 62 not in body
        assert prompt.text == " ".join(f"w{token}" for token in body)


def test_a_target_that_writes_the_same_over_and_over_is_told(decoder: Decoder) -> None:
    params = PARAMS.with_options(logit_bias={9: 1e3}, stop_token_ids=(9,))
    with pytest.raises(OptionError, match="the last 200 tries gave none"):
        list(self_prompts(decoder, 2, params=params))
    fixed = PARAMS.with_options(temperature=0, logit_bias={62: 1e3}, min_new_tokens=1)
    with pytest.raises(OptionError, match="the last 200 tries gave none"):
        list(self_prompts(decoder, 2, params=fixed))


def test_a_run_that_goes_on_tries_nothing_twice(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prompts.jsonl"
    write_self_prompts(decoder, path, 10, params=PARAMS)
    last = json.loads(path.read_bytes().splitlines()[-1])["index"]
    tried: list[int] = []

    def recorded(*arguments: Any) -> Any:
        tried.extend(arguments[-1])
        return write_all(*arguments)

    monkeypatch.setattr("outrider.training.self_prompts.write_all", recorded)
    write_self_prompts(decoder, path, 20, params=PARAMS)
    assert tried == [seed_of(5, last + 1 + place) for place in range(len(tried))]
    assert len(tried) < 60


def test_options_for_more_than_a_text_are_refused(decoder: Decoder, tmp_path: Path) -> None:
    for options, message in (({"n": 2}, "n is 2"), ({"logprobs": 1}, "logprobs is 1")):
        params = PARAMS.with_options(**options)
        with pytest.raises(OptionError, match=message):
            next(self_prompts(decoder, 1, params=params))
        with pytest.raises(OptionError, match=message):
            write_self_prompts(decoder, tmp_path / "prompts.jsonl", 1, params=params)
    assert not list(tmp_path.iterdir())


def test_a_file_of_prompts_goes_on_from_any_line(
    decoder: Decoder, written: list[SelfPrompt], tmp_path: Path
) -> None:
    path = tmp_path / "prompts.jsonl"
    wanted = [prompt.ids for prompt in written]
    counted: list[int] = []
    found = write_self_prompts(decoder, path, 10, params=PARAMS, on_progress=counted.append)
    assert found == wanted[:10] and counted == list(range(1, 11))
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        path.write_bytes(b"".join(lines[:kept]) + lines[kept][:20])
        assert write_self_prompts(decoder, path, 10, params=PARAMS) == wanted[:10]
    before = path.read_bytes()
    assert write_self_prompts(decoder, path, 6, params=PARAMS) == wanted[:6]
    assert path.read_bytes() == before
    assert write_self_prompts(decoder, path, 30, params=PARAMS) == wanted
    with pytest.raises(OptionError, match="were made with seed 5, not 6"):
        write_self_prompts(decoder, path, 6, params=PARAMS.with_options(seed=6))
