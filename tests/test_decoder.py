"""The public front: load, generate, stream, batch, and errors before any work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerBase

import outrider
from outrider import Decoder, Drafter, OutriderError, SamplingParams, load
from outrider.drafters.foreign import ForeignDrafter
from outrider.engine.events import Emitted
from outrider.errors import (
    LoadError,
    OptionError,
    PromptError,
    UnsupportedModelError,
)
from outrider.targets.base import Rows, ScoredRows
from outrider.targets.transformers import TransformersTarget
from support.files import save_tiny_model, word_tokenizer
from support.runs import assert_same
from support.scripted import ScriptedDrafter, always
from support.tiny import VOCAB, greedy_ids, random_ids, shared_model, tiny_model

PROMPT = random_ids(9, 2)
TEXT = " ".join(f"w{token}" for token in PROMPT)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return load(shared_model(), tokenizer=word_tokenizer(), drafter="ngram", max_batch=2)


@pytest.fixture
def passes(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each pass of the target."""
    seen: list[int] = []
    score = TransformersTarget.score

    def counted(self: TransformersTarget, rows: Sequence[Rows]) -> ScoredRows:
        seen.append(len(rows))
        return score(self, rows)

    monkeypatch.setattr(TransformersTarget, "score", counted)
    return seen


def test_importing_outrider_loads_no_torch() -> None:
    code = "import sys, outrider; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there_and_they_are_few() -> None:
    assert all(getattr(outrider, name) is not None for name in outrider.__all__)
    assert len(outrider.__all__) <= 11
    with pytest.raises(AttributeError, match="nothing"):
        outrider.nothing  # noqa: B018


def test_text_goes_in_and_text_comes_out(decoder: Decoder) -> None:
    result = decoder.generate(TEXT, max_new_tokens=12)
    assert list(result.token_ids) == greedy_ids(shared_model(), PROMPT, 12)
    assert result.text.split() == [f"w{token}" for token in result.token_ids]
    assert (result.prompt_ids, result.finish_reason) == (PROMPT, "length")
    assert_same(decoder.generate(PROMPT, max_new_tokens=12), result)


def test_plain_decoding_shares_the_target_and_says_the_same(decoder: Decoder) -> None:
    plain = decoder.without_drafter()
    assert plain.engine.target is decoder.engine.target
    assert plain.engine.drafter is None
    for options in ({}, {"temperature": 1.0, "seed": 3, "logprobs": 2}):
        found = decoder.generate(PROMPT, max_new_tokens=16, **options)  # type: ignore[arg-type]
        expected = plain.generate(PROMPT, max_new_tokens=16, **options)  # type: ignore[arg-type]
        assert_same(found, expected)
        assert expected.stats.proposed == 0


def test_a_stream_joined_is_the_whole_answer(decoder: Decoder) -> None:
    """SERVE-5: text, ids and count."""
    options: dict[str, Any] = {"max_new_tokens": 16, "temperature": 1.0, "seed": 4}
    whole = decoder.generate(TEXT, **options)
    with decoder.stream(TEXT, **options) as stream:
        chunks = list(stream)
        assert_same(stream.result, whole)
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert [token for chunk in chunks for token in chunk.tokens] == list(whole.tokens)
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == whole.finish_reason == "length"
    assert stream.result.stats.tokens == len(whole.token_ids)


def test_a_stream_has_no_result_before_its_end(decoder: Decoder) -> None:
    stream = decoder.stream(TEXT, max_new_tokens=30)
    next(stream)
    stream.close()
    with pytest.raises(RuntimeError, match="has not ended"):
        stream.result  # noqa: B018
    assert list(stream) == []
    assert not decoder.engine.target._sequences  # type: ignore[attr-defined]


def test_choices_are_plain_runs_with_the_seeds_that_follow(decoder: Decoder) -> None:
    """PROC-12: n = 3 from seed 5 are the runs of seeds 5, 6 and 7."""
    result = decoder.generate(PROMPT, n=3, seed=5, temperature=1.0, max_new_tokens=16)
    assert len(result.choices) == 3
    assert_same(result, result.choices[0])
    plain = decoder.without_drafter()
    for index, choice in enumerate(result.choices):
        expected = plain.generate(PROMPT, seed=5 + index, temperature=1.0, max_new_tokens=16)
        assert_same(choice, expected)
        assert choice.seed == 5 + index
        assert choice.choices == ()
    assert len({choice.token_ids for choice in result.choices}) == 3


def test_a_seed_that_was_chosen_for_the_user_repeats_the_answer(decoder: Decoder) -> None:
    first, second = (decoder.generate(PROMPT, temperature=1.0, max_new_tokens=16) for _ in range(2))
    assert first.seed != second.seed
    again = decoder.generate(PROMPT, temperature=1.0, max_new_tokens=16, seed=first.seed)
    assert_same(again, first)
    choices = decoder.generate(PROMPT, temperature=1.0, max_new_tokens=4, n=2).choices
    assert choices[1].seed == choices[0].seed + 1


def test_a_batch_gives_each_prompt_its_own_options(decoder: Decoder) -> None:
    prompts: list[str | Sequence[int]] = [PROMPT, TEXT, random_ids(30, 5), (7,)]
    params = [
        SamplingParams(max_new_tokens=5),
        SamplingParams(max_new_tokens=9, temperature=1.0, seed=1),
        SamplingParams(max_new_tokens=4, temperature=1.0, seed=2, n=2),
        SamplingParams(max_new_tokens=3, logprobs=1),
    ]
    found = decoder.generate_batch(prompts, params=params)
    for prompt, own, result in zip(prompts, params, found, strict=True):
        expected = decoder.generate(prompt, params=own)
        assert_same(result, expected)
        assert len(result.choices) == len(expected.choices)
    shared = decoder.generate_batch(prompts, params=params[0], max_new_tokens=2)
    assert [len(result.token_ids) for result in shared] == [2] * 4
    assert decoder.generate_batch([]) == []


def test_a_conversation_keeps_its_cache(decoder: Decoder) -> None:
    with decoder.session() as session:
        first = decoder.generate(PROMPT, session=session, max_new_tokens=6)
        prompt = (*PROMPT, *first.token_ids, 5, 6)
        second = decoder.generate(prompt, session=session, max_new_tokens=6)
        assert second.stats.reused_tokens == len(PROMPT) + 5
        assert_same(second, decoder.generate(prompt, max_new_tokens=6))
        for chunk in decoder.stream((*prompt, 7), session=session, max_new_tokens=6):
            assert chunk.tokens
        assert len(session.cached_tokens) == len(prompt) + 6


def test_defaults_are_the_models_own_and_options_go_on_top() -> None:
    model: Any = tiny_model()
    model.generation_config.do_sample = True
    model.generation_config.temperature = 0.6
    model.generation_config.top_p = 0.95
    model.generation_config.eos_token_id = [3, 4]
    own = load(model)
    assert (own.default_params.temperature, own.default_params.top_p) == (0.6, 0.95)
    assert own.generate(PROMPT, seed=1, max_new_tokens=8, ignore_eos=True).text == ""
    greedy = own.generate(PROMPT, temperature=0, max_new_tokens=60)
    assert greedy.finish_reason == "length" or greedy.token_ids[-1] in (3, 4)
    given = own.generate(PROMPT, params=SamplingParams(max_new_tokens=8, ignore_eos=True))
    assert list(given.token_ids) == greedy_ids(shared_model(), PROMPT, 8)


def test_a_chat_is_told_by_the_models_template() -> None:
    tokenizer: Any = word_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}w1 {{ m.content }} {% endfor %}"
        "{% if add_generation_prompt %}w2{% endif %}"
    )
    chatty = load(shared_model(), tokenizer=tokenizer)
    expected = chatty.generate([1, 9, 2], max_new_tokens=5)
    assert_same(chatty.generate("w9", chat=True, max_new_tokens=5), expected)
    messages = [{"role": "user", "content": "w9"}]
    assert_same(chatty.generate(messages, max_new_tokens=5), expected)
    with pytest.raises(PromptError, match="needs a role and a content"):
        chatty.generate([{"role": "user"}])
    with pytest.raises(PromptError, match="chat=True needs text or messages"):
        chatty.generate([1, 2], chat=True)


def test_every_spec_builds_a_drafter_that_changes_nothing(tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "draft")
    (tmp_path / "expected.txt").write_text(TEXT)
    plain = load(shared_model(), tokenizer=word_tokenizer()).generate(TEXT, max_new_tokens=12)
    specs = ["none", "ngram", "suffix", "prediction", f"prediction:{tmp_path / 'expected.txt'}"]
    choices: list[str | Drafter[Any]] = [*specs, f"model:{tmp_path / 'draft'}", always(3)]
    for spec in choices:
        found = load(shared_model(), tokenizer=word_tokenizer(), drafter=spec, max_draft=15)
        hint = plain.text if spec == "prediction" else None
        result = found.generate(TEXT, prediction=hint, max_new_tokens=12)
        assert_same(result, plain)
        assert result.stats.drafter_error is None
        if spec == "prediction":
            assert result.stats.rounds == 1
            by_ids = found.generate(TEXT, prediction=plain.token_ids, max_new_tokens=12)
            assert by_ids.stats.rounds == 1


@pytest.mark.parametrize("words", [60, 64])
def test_a_padded_draft_model_of_the_same_tokenizer_needs_no_options(
    tmp_path: Path, words: int
) -> None:
    """VOCAB-1: 72 rows where the target has 64, of one tokenizer."""
    folder = save_tiny_model(tmp_path / "draft", tokenizer=False, vocab_size=72)
    word_tokenizer(words).save_pretrained(folder)
    padded = load(shared_model(), tokenizer=word_tokenizer(words), drafter=f"model:{folder}")
    result = padded.generate(PROMPT[:3], max_new_tokens=16)
    assert_same(result, padded.without_drafter().generate(PROMPT[:3], max_new_tokens=16))
    assert result.stats.drafter_error is None


def test_a_draft_model_with_ids_of_its_own_is_seen_and_changes_nothing(tmp_path: Path) -> None:
    """VOCAB-2: ids 10 and 11 swapped, sizes equal."""
    folder = save_tiny_model(tmp_path / "draft", tokenizer=False)
    _swapped(10, 11).save_pretrained(folder)
    drafter = f"model:{folder}"
    decoder = load(shared_model(), tokenizer=word_tokenizer(), drafter=drafter, max_draft=3)
    assert isinstance(decoder.engine.drafters[0], ForeignDrafter)
    drafted = decoder.generate("w10 w11 w12", max_new_tokens=12)
    plain = decoder.without_drafter().generate("w10 w11 w12", max_new_tokens=12)
    assert drafted.token_ids == plain.token_ids


def _swapped(one: int, other: int) -> PreTrainedTokenizerBase:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    names = {f"w{i}": i for i in range(VOCAB)} | {f"w{one}": other, f"w{other}": one}
    make: Any = PreTrainedTokenizerFast  # its constructor is untyped
    tokenizer: PreTrainedTokenizerBase = make(
        tokenizer_object=Tokenizer(WordLevel(names, unk_token="w0")), unk_token="w0"
    )
    return tokenizer


BAD_CALLS: dict[str, tuple[Callable[[Decoder], object], type[OutriderError], str]] = {
    "unknown option": (
        lambda d: d.generate(PROMPT, temprature=1.0),
        OptionError,
        "unknown option temprature; did you mean temperature",
    ),
    "option out of range": (
        lambda d: d.generate(PROMPT, top_p=1.5),
        OptionError,
        r"top_p is 1\.5: expected a number from 0 to 1",
    ),
    "params of another kind": (
        lambda d: d.generate(PROMPT, params={"seed": 1}),  # type: ignore[arg-type]
        OptionError,
        "it must be SamplingParams",
    ),
    "empty text": (lambda d: d.generate(""), PromptError, "the prompt is empty"),
    "no ids": (lambda d: d.generate([]), PromptError, "the prompt is empty"),
    "too long": (lambda d: d.generate([1] * 300), PromptError, "300 tokens; the model holds 256"),
    "id too high": (lambda d: d.generate([1, 64]), PromptError, "prompt id 64 is outside"),
    "id below 0": (lambda d: d.generate([-2]), PromptError, "prompt id -2 is outside"),
    "bytes": (lambda d: d.generate(b"w1"), PromptError, "a prompt of type bytes"),
    "a number": (lambda d: d.generate(5), PromptError, "a prompt of type int"),  # type: ignore[arg-type]
    "a tensor": (
        lambda d: d.generate(torch.tensor([1])),
        PromptError,
        "a prompt of type Tensor",
    ),
    "halves": (lambda d: d.generate([1.5]), PromptError, "neither a text"),  # type: ignore[arg-type]
    "chat without template": (
        lambda d: d.generate(TEXT, chat=True),
        PromptError,
        "no chat template",
    ),
    "choices of a session": (
        lambda d: d.generate(PROMPT, n=2, session=d.session()),
        OptionError,
        "n is 2; a session",
    ),
    "choices of a stream": (lambda d: d.stream(PROMPT, n=2), OptionError, "n is 2; a stream"),
    "bad stream": (lambda d: d.stream([99]), PromptError, "prompt id 99"),
    "bias": (lambda d: d.stream(PROMPT, logit_bias={64: 1}), OptionError, "logit_bias holds 64"),
    "prediction": (
        lambda d: d.generate(PROMPT, prediction=[64]),
        OptionError,
        "prediction holds 64: expected ids from 0 to 63",
    ),
    "one bad prompt": (
        lambda d: d.generate_batch([PROMPT, PROMPT, [64]]),
        PromptError,
        "prompt id 64",
    ),
    "one bad option": (
        lambda d: d.generate_batch(
            [PROMPT] * 3,
            params=[SamplingParams()] * 2 + [SamplingParams(stop_token_ids=(80,))],
        ),
        OptionError,
        "stop_token_ids holds 80",
    ),
    "too few params": (
        lambda d: d.generate_batch([PROMPT] * 2, params=[SamplingParams()]),
        OptionError,
        "1 params for 2 prompts",
    ),
    "too few predictions": (
        lambda d: d.generate_batch([PROMPT] * 2, predictions=[None]),
        OptionError,
        "1 predictions for 2 prompts",
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_is_one_error_before_any_work(
    decoder: Decoder, passes: list[int], case: str
) -> None:
    call, error, message = BAD_CALLS[case]
    with pytest.raises(error, match=message):
        call(decoder)
    assert passes == []


def test_what_needs_a_tokenizer_says_so() -> None:
    bare = load(shared_model(), drafter="prediction")
    with pytest.raises(PromptError, match="a prompt in text needs a tokenizer"):
        bare.generate("w1")
    with pytest.raises(PromptError, match="a prediction in text needs a tokenizer"):
        bare.generate(PROMPT, prediction="w1")
    with pytest.raises(OptionError, match=r"stop=.* needs a tokenizer"):
        bare.stream(PROMPT, prediction=[1], stop="w1")
    with pytest.raises(OptionError, match="needs a prediction"):
        bare.generate(PROMPT)
    assert bare.generate(PROMPT, prediction=[1, 2], max_new_tokens=3).text == ""


BAD_LOADS: dict[str, tuple[dict[str, Any], type[OutriderError], str]] = {
    "rule": ({"rule": "loose"}, OptionError, "rule is 'loose'; it must be one of match"),
    "numerics": ({"numerics": "exact"}, OptionError, "numerics is 'exact'"),
    "max_draft": ({"max_draft": -1}, OptionError, "max_draft is -1"),
    "max_batch": ({"max_batch": 0}, OptionError, "max_batch is 0"),
    "drafter": ({"drafter": "oracle"}, OptionError, "drafter 'oracle' is unknown; known are"),
    "drafter class": ({"drafter": ScriptedDrafter}, OptionError, "it must be a spec"),
    "no model": ({"drafter": "model:"}, OptionError, "names no model"),
    "argument": ({"drafter": "ngram:5"}, OptionError, "'ngram:5' is unknown"),
    "prediction": ({"drafter": "prediction:/no/such"}, OptionError, "cannot be read"),
    "draft model": ({"drafter": "model:/no/such/model"}, LoadError, "/no/such/model"),
    "dtype": ({"dtype": "float8"}, OptionError, "dtype is 'float8'"),
}


@pytest.mark.parametrize("case", BAD_LOADS)
def test_a_bad_choice_at_loading_is_one_error(case: str) -> None:
    options, error, message = BAD_LOADS[case]
    with pytest.raises(error, match=message):
        load(shared_model(), **options)


@pytest.mark.parametrize(
    "options", [{"rule": "loose"}, {"max_batch": 0}, {"drafter": 5}, {"numerics": "no"}]
)
def test_choices_are_checked_before_the_model_is_looked_for(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        load("/no/such/model", **options)


def test_a_model_that_cannot_be_driven_is_refused() -> None:
    with pytest.raises(OptionError, match="training mode"):
        load(tiny_model().train())
    with pytest.raises(UnsupportedModelError, match="experts"):
        load(shared_model("mixtral"), numerics="invariant")


def test_a_batch_that_does_not_fit_is_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = outrider.load(tiny_model(), drafter="suffix")
    monkeypatch.setattr("outrider.targets.memory.available_memory", lambda device: 1000)
    with pytest.raises(OptionError, match="the request needs"):
        decoder.generate_batch([(1, 2, 3)] * 4, max_new_tokens=200)


def test_requests_for_a_scheduler_are_those_of_generate(decoder: Decoder) -> None:
    requests = decoder.requests(TEXT, max_new_tokens=9, temperature=1.0, seed=4, n=3, name="three")
    scheduler = decoder.engine.scheduler()
    tickets = [scheduler.submit(request) for request in requests]
    said: dict[str, str] = {}
    while scheduler.has_work:
        for event in scheduler.step():
            assert isinstance(event, Emitted)
            place = str(tickets.index(event.ticket))
            said[place] = said.get(place, "") + event.chunk.text
    expected = decoder.generate(TEXT, max_new_tokens=9, temperature=1.0, seed=4, n=3)
    assert [said[place] for place in "012"] == [choice.text for choice in expected.choices]
    assert {request.name for request in requests} == {"three"}


def test_requests_are_checked_and_need_no_prediction_that_nobody_has() -> None:
    decoder = load(shared_model(), tokenizer=word_tokenizer(), drafter="prediction,ngram")
    (bare,) = decoder.requests(PROMPT)
    (hinted,) = decoder.requests(PROMPT, prediction="w5 w6")
    assert (bare.prediction_ids, hinted.prediction_ids) == (None, (5, 6))
    with pytest.raises(PromptError, match="empty"):
        decoder.requests(())
    with pytest.raises(OptionError, match="top_p"):
        decoder.requests(PROMPT, top_p=2.0)
