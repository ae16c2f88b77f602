"""A card tells how a drafter came about and how good it is, to people and to programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.errors import OptionError
from outrider.machine import Machine
from outrider.training.card import TrainingCard
from outrider.training.evaluate import Evaluation
from outrider.training.score import Score
from outrider.training.settings import TrainOptions
from outrider.training.state import Best, Place
from outrider.training.trainer import Outcome

SCORE = Score(0.0, "all", 40, 5120, 3.125, (0.8, 0.75, 0.6), 0.975, 61.5, 1.8125)
SAMPLED = replace(SCORE, temperature=1.0, task="edit | copy", identical=None)
CARD = TrainingCard(
    title="EAGLE-3 head",
    spec="eagle:my head",
    target="some/model",
    data={"prompts": "prompts.jsonl", "answers": 1200},
    command=("outrider", "train", "eagle", "--out", "my head"),
    options=TrainOptions(learning_rate=1e-3, max_steps=900),
    outcome=Outcome(Place(900, 2, 7, 1_234_567, 5400.0, Best(800, 2.875)), 900, "steps", 800),
    machine=Machine("A Processor", 4, 4, None, {"torch": "2.13.0", "outrider": "0.1.0"}),
    evaluation=Evaluation("match", 8, 128, (SCORE, SAMPLED), ("prompt 3: token 1 is 5",)),
    notes=("trained on a CPU",),
)


def test_a_card_says_all_that_the_training_was(tmp_path: Path) -> None:
    path, _ = CARD.save(tmp_path)
    text = path.read_text()
    assert path.name == "README.md"
    for part in (
        "# EAGLE-3 head for some/model",
        "outrider train eagle --out 'my head'",
        "--drafter 'eagle:my head'",
        "| prompts | prompts.jsonl |",
        "| answers | 1200 |",
        "1,234,567",
        "900 of 900",
        "step 800, the best on what was held out: tau 2.875",
        "| hours | 1.50 |",
        "| machine | A Processor |",
        "torch 2.13.0, outrider 0.1.0",
        "| 0 | all | 40 | 3.12 | 0.80 0.75 0.60 | 97.5% | 1.81x |",
        "| 1 | edit \\| copy | 40 | 3.12 | 0.80 0.75 0.60 | not promised | 1.81x |",
        "- not identical, prompt 3: token 1 is 5",
        "- trained on a CPU",
    ):
        assert part in text, part


def test_a_record_holds_the_same_for_programs(tmp_path: Path) -> None:
    _, path = CARD.save(tmp_path)
    assert path.name == "training.json"
    record = json.loads(path.read_text())
    assert record == json.loads(json.dumps(CARD.to_dict()))
    assert record["command"] == ["outrider", "train", "eagle", "--out", "my head"]
    assert record["options"]["learning_rate"] == 1e-3
    assert record["outcome"]["place"]["best"] == {"step": 800, "tau": 2.875}
    assert record["machine"]["versions"]["torch"] == "2.13.0"
    assert record["evaluation"]["scores"][0]["acceptance_length"] == 3.125
    assert record["evaluation"]["scores"][1]["identical"] is None


def test_what_was_not_measured_is_not_claimed(tmp_path: Path) -> None:
    place = replace(CARD.outcome.place, best=None)
    card = replace(
        CARD, evaluation=None, outcome=replace(CARD.outcome, place=place, kept=900), notes=()
    )
    path, record = card.save(tmp_path)
    text = path.read_text()
    assert "Not measured." in text
    assert "tau" not in text
    assert "Notes" not in text
    assert json.loads(record.read_text())["evaluation"] is None


def test_a_card_is_replaced_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    CARD.save(tmp_path)
    replace(CARD, title="Medusa heads").save(tmp_path)
    assert (tmp_path / "README.md").read_text().count("\n# ") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "training.json"]


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot write .*README\.md"):
        CARD.save(tmp_path / "missing")
