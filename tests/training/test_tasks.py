"""Prompts that are made up: the same for a seed, and of every kind."""

from __future__ import annotations

from itertools import islice

from outrider.training.tasks import task_prompts


def test_a_seed_always_gives_the_same_prompts_from_any_number_on() -> None:
    whole = list(islice(task_prompts(3), 30))
    assert list(islice(task_prompts(3, first=12), 18)) == whole[12:]
    assert list(islice(task_prompts(4), 30)) != whole


def test_prompts_hardly_ever_repeat() -> None:
    prompts = list(islice(task_prompts(1), 2000))
    assert len(set(prompts)) > 1500


def test_prompts_are_of_every_kind_and_of_a_length_a_small_model_can_read() -> None:
    prompts = list(islice(task_prompts(2), 200))
    assert sum("```python" in prompt for prompt in prompts) > 50
    assert sum("How m" in prompt for prompt in prompts) > 50
    assert all(10 < len(prompt) < 4000 for prompt in prompts)
