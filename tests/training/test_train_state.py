"""Checkpoints of a run are whole or not there, and one that is damaged costs one interval."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest
import torch

import outrider.training.state as state_module
from outrider.errors import LoadError
from outrider.training.state import Best, Place, RunFolder, Snapshot


def snapshot(step: int, best: Best | None = None) -> Snapshot:
    place = Place(step, epoch=1, batch=step % 5, tokens=10 * step, seconds=0.1 * step, best=best)
    weights = {
        "a": torch.full((2, 3), step / 3),
        "ids": torch.arange(4),
        "flag": torch.tensor(True),
    }
    return Snapshot(place, {"seed": 0, "lr": 1e-4}, weights, {"a.step": torch.tensor(float(step))})


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.newest() is None
    saved = snapshot(3, Best(2, 1.75))
    folder.save(saved)
    found = RunFolder(tmp_path).newest()
    assert found is not None
    assert (found.place, found.course) == (saved.place, saved.course)
    for ours, theirs in ((found.weights, saved.weights), (found.optimizer, saved.optimizer)):
        assert ours.keys() == theirs.keys()
        for name, tensor in theirs.items():
            assert ours[name].dtype == tensor.dtype
            assert torch.equal(ours[name], tensor)


def test_the_last_two_are_kept_and_the_best(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in range(1, 8):
        folder.save(snapshot(step, Best(3, 2.0) if step >= 3 else None))
    assert folder.steps() == [3, 6, 7]


def test_the_best_that_an_older_checkpoint_knows_outlives_a_newer_best(tmp_path: Path) -> None:
    """Should the newest be damaged, the one before is gone on from, and its best is needed."""
    folder = RunFolder(tmp_path)
    for step, best in ((1, 1), (2, 1), (3, 1), (4, 4)):
        folder.save(snapshot(step, Best(best, 1.0 + best)))
    assert folder.steps() == [1, 3, 4]
    folder.save(snapshot(5, Best(4, 5.0)))
    assert folder.steps() == [4, 5]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_is_skipped_with_one_line(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = RunFolder(tmp_path)
    folder.save(snapshot(1))
    path = folder.save(snapshot(2)) / name
    whole = path.read_bytes()
    # Still of the right form, but a number in it is another.
    other = whole.replace(b'"tokens": 20', b'"tokens": 21') if name.endswith("json") else whole[:-1]
    other += bytes([whole[-1] ^ 1]) if len(other) < len(whole) else b""
    for damage in (whole[: len(whole) // 2], b"", other, None):
        caplog.clear()
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage)
        with caplog.at_level(logging.WARNING, "outrider"):
            found = folder.newest()
        assert found is not None
        assert found.place.step == 1
        assert len(caplog.records) == 1
        assert "\n" not in caplog.text.strip()
        assert "checkpoint of step 2 skipped" in caplog.text


def test_a_run_all_of_whose_checkpoints_are_damaged_is_not_begun_anew(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (folder.save(snapshot(1)) / "model.safetensors").unlink()
    with pytest.raises(LoadError, match=r"no checkpoint in .* is intact"):
        folder.newest()


class Killed(BaseException):
    """The end of the process: nobody cleans up after it."""


@pytest.mark.parametrize(
    ("last", "calls"),
    [("write_tensors", 0), ("write_tensors", 1), ("file_digest", 0), ("replace", 0)],
)
def test_a_run_killed_while_it_saves_loses_nothing_but_that_checkpoint(
    tmp_path: Path, last: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunFolder(tmp_path).save(snapshot(1))
    home = os if last == "replace" else state_module
    original = getattr(home, last)
    left = [None] * calls

    def end(*arguments: object) -> object:
        if not left:
            raise Killed
        left.pop()
        return original(*arguments)

    with monkeypatch.context() as context, pytest.raises(Killed):
        context.setattr(home, last, end)
        context.setattr(shutil, "rmtree", lambda *_, **__: None)
        RunFolder(tmp_path).save(snapshot(2))
    folder = RunFolder(tmp_path)
    assert len(list(folder.path.iterdir())) == 2
    assert folder.steps() == [1]
    found = folder.newest()
    assert found is not None
    assert found.place.step == 1
    assert [path.name for path in folder.path.iterdir()] == ["step-00000001"]  # swept
    folder.save(snapshot(2))
    assert folder.steps() == [1, 2]


def test_later_checkpoints_are_dropped_and_the_same_step_is_replaced(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (1, 2):
        folder.save(snapshot(step))
    folder.drop_after(1)
    assert folder.steps() == [1]
    folder.save(snapshot(1, Best(1, 3.0)))
    found = folder.newest()
    assert found is not None
    assert found.place.best == Best(1, 3.0)
