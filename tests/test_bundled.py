"""The drafters that come along: they fit their target, change nothing, and help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import outrider
from outrider import bundled
from outrider.bundled import bundled_head
from outrider.checkpoints.read import read_checkpoint

FOLDERS = sorted(Path(bundled.__file__).parent.glob("*/*/config.json"))
PROMPTS = (
    "Name three rivers in Europe.",
    "Write a Python function that adds two numbers.",
    "What is 12 times 7? Think step by step.",
)


@pytest.mark.parametrize("config", FOLDERS, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_a_head_that_comes_along_is_small_whole_and_has_its_card(config: Path) -> None:
    folder = config.parent
    assert sum(file.stat().st_size for file in folder.iterdir()) < 25e6
    checkpoint = read_checkpoint(folder)
    assert checkpoint.kind == folder.name
    assert checkpoint.target == folder.parent.name
    assert all(
        tensor.element_size() == 2
        for tensor in checkpoint.tensors.values()
        if tensor.is_floating_point()
    )
    assert "## Training" in (folder / "README.md").read_text(encoding="utf-8")
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))


@pytest.mark.embedded
@pytest.mark.parametrize(("drafter", "least"), [("eagle", 1.5), ("medusa", 1.2), ("model", 1.3)])
def test_what_comes_along_is_right_often_enough_and_changes_nothing(
    drafter: str, least: float
) -> None:
    most = 4 if drafter == "model" else 16
    decoder = outrider.load("smollm2-135m", drafter=drafter, max_draft=most)
    plain = decoder.without_drafter()
    tokens = rounds = 0
    for prompt in PROMPTS:
        options = {"chat": True, "temperature": 0.0, "max_new_tokens": 32}
        found = decoder.generate(prompt, **options)  # type: ignore[arg-type]
        assert found.token_ids == plain.generate(prompt, **options).token_ids  # type: ignore[arg-type]
        tokens += len(found.token_ids)
        rounds += found.stats.rounds
    assert tokens / rounds > least


@pytest.mark.embedded
def test_a_quantised_target_has_the_head_of_its_model() -> None:
    assert bundled_head("eagle", "smollm2-135m@int8") == bundled_head("eagle", "smollm2-135m")
