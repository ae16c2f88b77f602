from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outrider import Decoder, SamplingParams, load
from outrider.errors import LoadError, OptionError, PromptError
from outrider.training.prompts import prompt_key
from outrider.training.respond import Progress, read_answers, respond
from outrider.training.writing import seed_of
from support.files import word_tokenizer
from support.tiny import random_ids, shared_model, tiny_model

PARAMS = SamplingParams(
    temperature=2.0, max_new_tokens=6, stop_token_ids=(1, 2, 3, 4, 5, 6), seed=7
)
PROMPTS = [random_ids(3 + index, index) for index in range(7)]


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return load(shared_model(), tokenizer=word_tokenizer(), drafter="ngram", max_batch=3)


@pytest.fixture(scope="module")
def whole(decoder: Decoder, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the file of a run that was never stopped."""
    path = tmp_path_factory.mktemp("whole") / "answers.jsonl"
    respond(decoder, PROMPTS, path, params=PARAMS)
    return path.read_bytes()


def records(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.splitlines()[1:]]


def by_key(content: bytes) -> dict[str, Any]:
    found = {record["key"]: record for record in records(content)}
    assert len(found) == len(records(content)), "an answer came twice"
    return found


def test_each_prompt_is_answered_as_generate_would(decoder: Decoder, whole: bytes) -> None:
    found = by_key(whole)
    assert set(found) == {prompt_key(prompt) for prompt in PROMPTS}
    for prompt in PROMPTS:
        seed = seed_of(7, prompt_key(prompt))
        expected = decoder.generate(prompt, params=PARAMS, seed=seed)
        record = found[prompt_key(prompt)]
        assert record["ids"] == list(expected.token_ids)
        assert (record["finish_reason"], record["seed"]) == (expected.finish_reason, seed)
        assert record["prompt_ids"] == list(prompt)
    assert len({record["finish_reason"] for record in found.values()}) == 2


def test_a_run_goes_on_from_any_byte_of_its_file(tmp_path: Path) -> None:
    """Of the header and of the last two lines: no answer is lost, none comes twice."""
    decoder = load(tiny_model(num_hidden_layers=1), max_batch=2)
    path = tmp_path / "answers.jsonl"
    params = SamplingParams(max_new_tokens=2)
    prompts = [(1, 2), (3,), (4,)]
    respond(decoder, prompts, path, params=params)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    tail = len(lines[-1]) + len(lines[-2])
    wanted = by_key(whole)
    for length in range(len(whole) - tail, len(whole) + 1):
        path.write_bytes(whole[:length])
        progress = respond(decoder, prompts, path, params=params)
        found = path.read_bytes()
        kept = whole[: whole.rfind(b"\n", 0, length) + 1]
        assert found.startswith(kept)
        assert by_key(found) == wanted
        assert progress.answers == len(prompts)
    for length in range(len(lines[0])):
        path.write_bytes(whole[:length])
        respond(decoder, prompts[:1], path, params=params)
        assert len(read_answers(path)) == 1
        assert path.read_bytes().startswith(lines[0])


def test_a_torn_line_is_not_read(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(whole[:-1])
    assert len(read_answers(path)) == len(PROMPTS) - 1
    assert path.read_bytes() == whole[:-1], "reading changes nothing"


def test_a_run_that_is_interrupted_keeps_what_it_wrote(
    decoder: Decoder, whole: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "answers.jsonl"

    def interrupt(progress: Progress) -> None:
        if progress.answers % 2 == 0:
            raise KeyboardInterrupt

    for expected in (2, 4, 6):
        with pytest.raises(KeyboardInterrupt):
            respond(decoder, PROMPTS, path, params=PARAMS, on_progress=interrupt)
        assert len(read_answers(path)) == expected
        assert not decoder.engine.target._sequences  # type: ignore[attr-defined]
    respond(decoder, PROMPTS, path, params=PARAMS, on_progress=interrupt)
    assert by_key(path.read_bytes()) == by_key(whole)


def test_an_answer_is_in_the_file_before_the_next_is_written(
    decoder: Decoder, tmp_path: Path
) -> None:
    path = tmp_path / "answers.jsonl"
    counts: list[tuple[int, int]] = []

    def count(progress: Progress) -> None:
        counts.append((progress.answers, len(read_answers(path))))

    respond(decoder, PROMPTS, path, params=PARAMS, on_progress=count)
    assert counts == [(n, n) for n in range(1, len(PROMPTS) + 1)]


def test_what_is_there_is_not_written_again(decoder: Decoder, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(whole)
    seen: list[Progress] = []
    respond(decoder, PROMPTS, path, params=PARAMS, on_progress=seen.append)
    assert path.read_bytes() == whole and not seen
    respond(decoder, [*PROMPTS, (9, 9), (9, 9)], path, params=PARAMS)
    assert len(by_key(path.read_bytes())) == len(PROMPTS) + 1


def test_answers_become_samples_that_teach_the_answer(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(whole)
    for sample, record in zip(read_answers(path), records(whole), strict=True):
        assert sample.ids == (*record["prompt_ids"], *record["ids"])
        assert sample.prompt_tokens == len(record["prompt_ids"])


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "temperature": ({"temperature": 1.0}, r"temperature 2\.0, not 1\.0"),
    "top_p": ({"top_p": 0.9}, r"top_p its default, not 0\.9"),
    "seed": ({"seed": 8}, "seed 7, not 8"),
    "stop": ({"stop_token_ids": ()}, r"stop_token_ids \[1, 2, 3, 4, 5, 6\], not its default"),
    "bias": ({"logit_bias": {3: float("-inf")}}, "logit_bias its default, not {'3': '-inf'}"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_answers_made_with_other_options_are_not_gone_on_with(
    decoder: Decoder, whole: bytes, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(whole[:-3])
    options, message = OTHERS[name]
    with pytest.raises(OptionError, match=f"were made with {message}: go on as"):
        respond(decoder, PROMPTS, path, params=PARAMS.with_options(**options))
    assert path.read_bytes() == whole[:-3]


def test_answers_of_another_target_are_not_gone_on_with(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(whole)
    other = load(tiny_model(num_hidden_layers=3))
    with pytest.raises(OptionError, match="were made with parameters"):
        respond(other, PROMPTS, path, params=PARAMS)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("content", [b"my notes", b'{"prompt": "x"}\n{"prompt": "y"}\n', b"\n"])
def test_a_file_of_something_else_is_left_alone(
    decoder: Decoder, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_bytes(content)
    with pytest.raises(OptionError, match="is there already, and holds no answers"):
        respond(decoder, PROMPTS, path, params=PARAMS)
    assert path.read_bytes() == content


def edited(**values: Any) -> Callable[[bytes], bytes]:
    return lambda line: json.dumps(json.loads(line) | values).encode() + b"\n"


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[5:],
        lambda line: b"[]\n",
        edited(ids=[1, "2"]),
        edited(ids=None),
        edited(finish_reason="tired"),
        edited(prompt_ids=[1]),
    ],
)
def test_a_damaged_line_is_named(
    whole: bytes, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    lines = whole.splitlines(keepends=True)
    lines[2] = damage(lines[2])
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b"".join(lines))
    with pytest.raises(LoadError, match=r"answers\.jsonl:3 is damaged"):
        read_answers(path)


def test_reading_what_is_not_there_or_no_answers_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"cannot read the answers in .*: No such file"):
        read_answers(tmp_path / "none.jsonl")
    (tmp_path / "other.jsonl").write_text('{"prompt": "x"}\n')
    with pytest.raises(LoadError, match=r"other\.jsonl' holds no answers"):
        read_answers(tmp_path / "other.jsonl")


def test_a_budget_of_tokens_ends_the_run(decoder: Decoder, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    sizes = [len(record["ids"]) for record in records(whole)]
    for budget in (1, sizes[0] + 1, sum(sizes), 1000):
        progress = respond(decoder, PROMPTS, path, params=PARAMS, max_tokens=budget)
        count = next((n for n in range(8) if sum(sizes[:n]) >= budget), len(sizes))
        assert progress.answers == len(read_answers(path)) == count
        assert progress.tokens == sum(sizes[:count])
        path.unlink()


def test_a_budget_counts_what_earlier_runs_wrote(
    decoder: Decoder, whole: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(whole)
    respond(decoder, [*PROMPTS, (9, 9)], path, params=PARAMS, max_tokens=5)
    assert path.read_bytes() == whole


def test_progress_counts_earlier_runs_and_foretells_by_this_one(
    decoder: Decoder, whole: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:4]))
    seen: list[Progress] = []
    now = iter(range(0, 1000, 10))
    respond(
        decoder,
        PROMPTS,
        path,
        params=PARAMS,
        on_progress=seen.append,
        clock=lambda: float(next(now)),
    )
    assert [(p.answers, p.prompts) for p in seen] == [(4, 7), (5, 7), (6, 7), (7, 7)]
    assert [p.seconds_left for p in seen] == [30.0, 20.0, 10.0, 0.0]
    assert seen[-1].tokens == sum(len(record["ids"]) for record in records(whole))


def test_what_cannot_be_answered_is_refused_before_any_work(
    decoder: Decoder, tmp_path: Path
) -> None:
    path = tmp_path / "answers.jsonl"
    for options, message in (({"n": 2}, "n is 2"), ({"logprobs": 1}, "logprobs is 1")):
        with pytest.raises(OptionError, match=message):
            respond(decoder, PROMPTS, path, params=PARAMS.with_options(**options))
    with pytest.raises(OptionError, match="max_tokens is 0, must be at least 1"):
        respond(decoder, PROMPTS, path, params=PARAMS, max_tokens=0)
    with pytest.raises(PromptError, match="prompt 8: the prompt has 300 tokens"):
        respond(decoder, [*PROMPTS, (1,) * 300], path, params=PARAMS)
    with pytest.raises(OptionError, match="cannot be written"):
        respond(decoder, PROMPTS, tmp_path, params=PARAMS)


def test_a_file_without_answers_may_be_begun_anew(decoder: Decoder, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with pytest.raises(PromptError, match="the prompt is empty"):
        respond(decoder, [()], path, params=PARAMS)
    assert read_answers(path) == []
    other = PARAMS.with_options(temperature=1.0)
    respond(decoder, PROMPTS[:1], path, params=other)
    with pytest.raises(OptionError, match=r"made with temperature 1\.0, not 2\.0"):
        respond(decoder, PROMPTS, path, params=PARAMS)


def test_the_models_own_options_are_the_default(decoder: Decoder, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "answers.jsonl"
    prompt = PROMPTS[0]
    own = load(tiny_model(), max_batch=1)
    own.default_params = SamplingParams(max_new_tokens=3)
    respond(own, [prompt], path)
    (sample,) = read_answers(path)
    assert sample.ids[len(prompt) :] == own.generate(prompt, max_new_tokens=3).token_ids
