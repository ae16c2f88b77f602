"""The translation recipe: languages say each number in one way; the formula is the paper's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from support.recipes import recipe_module


@pytest.fixture
def task() -> Iterator[Any]:
    with recipe_module("translation_task") as module:
        yield module


def test_no_two_numbers_sound_alike(task: Any) -> None:
    numbers = [*range(2000), *range(2000, 1_000_000, 4_999)]
    numbers += [
        count * 1000**power + rest
        for count in (1, 2, 81, 200)
        for power in (2, 3, 4)
        for rest in (0, 1, 80, 1000, 999_999)
    ]
    for language in task.LANGUAGES.values():
        assert len({tuple(language.number(one)) for one in numbers}) == len(numbers)


def test_the_tokenizer_knows_every_word_and_gives_it_back(task: Any) -> None:
    tokenizer = task.build_tokenizer()
    for first, second in (("en", "de"), ("fr", "en")):
        for text in chain.from_iterable(islice(task.sentences((first, second), 5), 300)):
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.unk_token_id not in ids and ids[-1] == tokenizer.eos_token_id
            assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_sentences_go_on_and_are_the_same_for_the_same_seed(task: Any) -> None:
    some, again = (list(islice(task.sentences(("en", "de"), 1), 300)) for _ in range(2))
    assert some == again != list(islice(task.sentences(("en", "de"), 2), 300))
    assert len(set(some)) > 250


def trial(recipe: Any, **known: Any) -> Any:
    usual = {"alpha": 1.0, "token_s": 4.0, "drafted_s": 1.0, "verified_s": 6.0, "lengths": (10, 5)}
    return recipe.Trial(**(usual | known))


def test_the_formula_is_that_of_the_paper() -> None:
    """Leviathan et al. (2211.17192), equation 1 and theorem 3.8."""
    with recipe_module("translation") as recipe:
        powers = [0.8**depth for depth in range(6)]
        assert recipe.expected(0.8, 5) == pytest.approx(sum(powers))
        assert recipe.expected(1.0, 5) == 6
        found = trial(recipe, alpha=0.8, token_s=10.0)
        assert found.c == 0.1
        assert found.formula(5) == pytest.approx(sum(powers) / 1.5)


def test_work_is_that_of_the_formula_but_for_the_end_of_the_text() -> None:
    with recipe_module("translation") as recipe:
        assert recipe.expected_work(1.0, 3, 9) == (3, 7)  # of 4, 4 and 1 tokens
        assert recipe.expected_work(0.0, 3, 9) == (9, 7 * 3 + 2 + 1)
        # Two tokens: the second comes in the same round if its draft is accepted.
        assert recipe.expected_work(0.7, 3, 2) == pytest.approx((1.3, 2.3))
        some, more = (recipe.expected_work(0.7, 3, tokens) for tokens in (1000, 2000))
        assert 1000 / (more[0] - some[0]) == pytest.approx(recipe.expected(0.7, 3))
        assert more[1] - some[1] == pytest.approx(3 * (more[0] - some[0]))


def test_a_prediction_counts_rows_rounds_and_ends() -> None:
    with recipe_module("translation") as recipe:
        passes = {rows: 2.0 + rows for rows in range(2, 14)}
        # Rounds of 5, 5 and 5 tokens, and drafts of 4, 4, and 4: none behind an end.
        found = trial(recipe).speedup(recipe.TRIED, passes)
        assert found == pytest.approx(15 * 4.0 / (3 * 6.0 + 12 * 1.0))
        # Rounds of 10 and 5 tokens, of 5 rows more than in the trial.
        found = trial(recipe).speedup(9, passes)
        assert found == pytest.approx(15 * 4.0 / (2 * (6.0 + 5.0) + (9 + 5) * 1.0))
        assert trial(recipe, alpha=0.1).best_length(passes) == 1
        assert trial(recipe, lengths=(99,)).best_length(dict.fromkeys(passes, 1.0)) == 12


def test_a_drafter_begins_as_layers_of_its_target() -> None:
    """All of them are the target itself; one is its first, with the same encoder."""
    with recipe_module("translation_training") as recipe:
        torch.manual_seed(0)
        teacher = recipe._build(4, 40)
        inputs = {"input_ids": torch.arange(9)[None], "labels": torch.arange(7)[None]}
        with torch.no_grad():
            wanted = teacher(**inputs).logits
            assert torch.equal(recipe.cut(teacher, 4)(**inputs).logits, wanted)
            one = recipe.cut(teacher, 1)
            assert not torch.equal(one(**inputs).logits, wanted)
        assert len(one.decoder.block) == 1
        for ours, theirs in zip(
            one.encoder.parameters(), teacher.encoder.parameters(), strict=True
        ):
            assert torch.equal(ours, theirs)


def test_a_drafter_learns_what_its_target_says(tmp_path: Path) -> None:
    """A few steps of training: files appear once, and teaching brings a drafter nearer."""
    with recipe_module("translation_training") as recipe:
        recipe.DECODER_LAYERS.update(target=2)
        pair = ("en", "de")
        paths = {name: recipe.train(name, tmp_path, pair, 6) for name in ("target", "small")}
        before = {
            path: Path(path, "model.safetensors").stat().st_mtime_ns for path in paths.values()
        }
        for name in paths:
            recipe.train(name, tmp_path, pair, 6)
        after = {
            path: Path(path, "model.safetensors").stat().st_mtime_ns for path in paths.values()
        }
        assert before == after
        load = recipe.T5ForConditionalGeneration.from_pretrained
        teacher, taught = (load(paths[name]).eval() for name in ("target", "small"))
        untaught = recipe.cut(teacher, 1).eval()
        batch = next(recipe._batches(recipe.build_tokenizer(), pair, 9))
        wanted = recipe._distributions(teacher, batch)
        with torch.no_grad():
            losses = [
                cross_entropy(one(**batch).logits.flatten(0, 1), wanted.flatten(0, 1)).item()
                for one in (taught, untaught)
            ]
        assert losses[0] < losses[1]
