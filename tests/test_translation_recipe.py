"""The translation recipe: languages say each number in one way; the formula is the paper's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from support.recipes import recipe_module


@pytest.fixture
def task() -> Iterator[Any]:
    with recipe_module("translation_task") as module:
        yield module


def test_no_two_numbers_sound_alike(task: Any) -> None:
    numbers = [*range(2000), *range(2000, 1_000_000, 4_999)]
    for language in task.LANGUAGES:
        assert len({tuple(language.number(one)) for one in numbers}) == len(numbers)


def test_the_tokenizer_knows_every_word_and_gives_it_back(task: Any) -> None:
    tokenizer = task.build_tokenizer()
    for source, wanted in islice(task.sentences(5), 500):
        for text in (source, wanted):
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.unk_token_id not in ids and ids[-1] == tokenizer.eos_token_id
            assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_sentences_go_on_and_are_the_same_for_the_same_seed(task: Any) -> None:
    some, again = (list(islice(task.sentences(1), 300)) for _ in range(2))
    assert some == again != list(islice(task.sentences(2), 300))
    assert len(set(some)) > 250


def test_the_formula_is_that_of_the_paper() -> None:
    """Leviathan et al. (2211.17192), equation 1, and short drafts where a draft costs a pass."""
    with recipe_module("translation") as recipe:
        powers = [0.8**depth for depth in range(6)]
        assert recipe.expected(0.8, 5) == pytest.approx(sum(powers))
        assert recipe.expected(1.0, 5) == 6
        assert recipe.best_length(0.3, 1.0) == 1 < recipe.best_length(0.9, 0.05)
