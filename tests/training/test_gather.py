"""What a run learns from: prompts that it lets be answered, and answers that are there already."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import outrider
from outrider import Decoder
from outrider.errors import OptionError
from outrider.training.base import Sample
from outrider.training.gather import ANSWERS, gather
from outrider.training.recipe import Recipe
from support.files import word_tokenizer
from support.tiny import tiny_model


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return outrider.load(tiny_model(num_hidden_layers=1), tokenizer=word_tokenizer(), max_batch=4)


def prompt_file(folder: Path, name: str, words: range) -> Path:
    path = folder / name
    path.write_text("".join(json.dumps({"prompt": f"w{word} w3"}) + "\n" for word in words))
    return path


def gathered(decoder: Decoder, folder: Path, *data: Path) -> list[Sample]:
    recipe = Recipe(kind="draft", data=tuple(map(str, data)), answer_tokens=5)
    return gather(decoder, recipe, folder, 0, lambda _: None)


def test_answers_that_another_run_wrote_are_learnt_as_they_are(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = gathered(decoder, tmp_path / "a", prompt_file(tmp_path, "p.jsonl", range(4)))
    assert len(first) == 4
    answers = tmp_path / "a" / ANSWERS
    more = prompt_file(tmp_path, "q.jsonl", range(10, 12))
    both = gathered(decoder, tmp_path / "b", answers, more)
    assert both[:4] == first and len(both) == 6
    monkeypatch.setattr(decoder.engine, "run", lambda _: pytest.fail("answered again"))
    assert gathered(decoder, tmp_path / "c", answers) == first


def test_answers_of_another_target_are_refused(decoder: Decoder, tmp_path: Path) -> None:
    gathered(decoder, tmp_path / "a", prompt_file(tmp_path, "p.jsonl", range(2)))
    other = outrider.load(tiny_model(num_hidden_layers=2), tokenizer=word_tokenizer())
    with pytest.raises(OptionError, match=r"are of another target: its parameters is \d+, not"):
        gathered(other, tmp_path / "b", tmp_path / "a" / ANSWERS)
