"""A profile is used where it fits, and nowhere else."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import LoadError, OptionError
from outrider.machine import Machine, this_machine
from outrider.profile import Profile, Subject, describe_subject, find_profile, profile_path
from outrider.targets.loading import LoadedModel
from outrider.targets.transformers import TransformersTarget
from support.files import word_tokenizer
from support.runs import shared_target
from support.tiny import shared_model, tiny_model

PASSES: dict[str, Any] = {"knots": [[1, 0.01], [16, 0.02]]}
DRAFTERS: dict[str, Any] = {"suffix": {"cost": 1e-5}, "model:a/b": {"cost": 0.5}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    return tmp_path


def loaded(name: str = "org/tiny") -> LoadedModel:
    return LoadedModel(shared_model(), word_tokenizer(), name)


def fitting(**changes: Any) -> Profile:
    target = shared_target()
    profile = Profile(
        subject=describe_subject(loaded(), target),
        machine=this_machine(target.device),
        passes=PASSES,
        drafters=DRAFTERS,
        results=({"drafter": "suffix", "speedup": 1.5},),
        measured="2030-01-01T00:00:00+00:00",
    )
    return replace(profile, **changes)


def test_what_is_saved_is_what_is_found(cache: Path) -> None:
    path = fitting().save()
    assert path == profile_path(fitting().subject)
    assert path.parent == cache / "profiles"
    assert find_profile(None, loaded(), shared_target()) == fitting()
    assert find_profile(False, loaded(), shared_target()) is None
    assert find_profile(path, loaded(), shared_target()) == fitting()
    assert find_profile(str(path), loaded(), shared_target()) == fitting()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_whole_numbers_as_keys_are_read_back_as_a_reader_sees_them() -> None:
    path = fitting(passes={10: 1.0, 9: 2.0}).save()
    assert Profile.load(path).passes == {"10": 1.0, "9": 2.0}


def test_another_model_or_another_way_to_run_it_has_a_profile_of_its_own() -> None:
    fitting().save()
    assert find_profile(None, loaded("org/other"), shared_target()) is None
    exact = TransformersTarget(shared_model(), numerics="invariant")
    assert find_profile(None, loaded(), exact) is None
    larger = tiny_model(num_hidden_layers=1)
    other = LoadedModel(larger, None, "org/tiny")
    assert find_profile(None, other, TransformersTarget(larger)) is None
    subject = fitting().subject
    changes: dict[str, Any] = {"is_compiled": True, "dtype": "bfloat16", "placement": "cuda:0"}
    for name, value in changes.items():
        changed = replace(subject, **{name: value})
        assert profile_path(changed) != profile_path(subject)
        assert subject.difference(changed) is not None


STALE: dict[str, tuple[dict[str, Any], str]] = {
    "processor": ({"processor": "Abacus 3000"}, "processor Abacus 3000 instead of "),
    "threads": ({"threads": 64}, "threads 64 instead of 1"),
    "accelerator": ({"accelerator": "GPU"}, "accelerator GPU instead of None"),
    "version": ({"versions": {"torch": "1.0"}}, "outrider None instead of "),
}


@pytest.mark.parametrize("case", STALE)
def test_a_profile_of_another_machine_or_version_is_left_alone_with_one_line(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    changes, message = STALE[case]
    path = fitting(machine=replace(fitting().machine, **changes)).save()
    with caplog.at_level(logging.INFO, logger="outrider"):
        assert find_profile(None, loaded(), shared_target()) is None
    (line,) = caplog.messages
    assert message in line and "\n" not in line
    with pytest.raises(OptionError, match=f"does not fit: it is of {message}"):
        find_profile(path, loaded(), shared_target())


def test_a_file_of_another_subject_in_the_place_of_this_one_is_not_used() -> None:
    subject = replace(fitting().subject, dtype="bfloat16")
    fitting(subject=subject).save(profile_path(fitting().subject))
    assert find_profile(None, loaded(), shared_target()) is None
    with pytest.raises(OptionError, match="dtype bfloat16 instead of float64"):
        find_profile(profile_path(fitting().subject), loaded(), shared_target())


def _cut(text: str) -> str:
    return text[: len(text) // 2]


def _edited(text: str) -> str:
    return text.replace("0.01", "0.02")


def _newer(text: str) -> str:
    return json.dumps(json.loads(text) | {"format": 99})


def _listed(_: str) -> str:
    return "[1]"


@pytest.mark.parametrize("damage", [_cut, _edited, _newer, _listed])
def test_a_damaged_profile_is_never_trusted(damage: Any, caplog: pytest.LogCaptureFixture) -> None:
    path = fitting().save()
    damaged = damage(path.read_text())
    assert damaged != path.read_text()
    path.write_text(damaged)
    with caplog.at_level(logging.INFO, logger="outrider"):
        assert find_profile(None, loaded(), shared_target()) is None
    (line,) = caplog.messages
    assert "is no usable profile" in line and "\n" not in line
    with pytest.raises(LoadError, match="is no usable profile"):
        find_profile(path, loaded(), shared_target())


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no usable profile: No such file"):
        find_profile(tmp_path / "missing.json", loaded(), shared_target())


def test_a_save_that_fails_leaves_the_old_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    path = fitting().save()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        with pytest.raises(LoadError, match="cannot write the profile"):
            fitting(passes={}).save()
    assert Profile.load(path) == fitting()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_what_was_learnt_of_a_drafter_serves_that_drafter_only() -> None:
    """Two draft models have one name, and nothing else in common."""
    profile = fitting()
    specs: dict[str, str | None] = {"suffix": "suffix", "model": "model:c/d", "mine": None}
    assert profile.for_drafters(specs) == {"pass": PASSES, "drafters": {"suffix": {"cost": 1e-5}}}
    second = profile.for_drafters({"model": "model:c/d", "model 2": "model:a/b"})
    assert second["drafters"] == {"model 2": {"cost": 0.5}}


def test_a_subject_says_where_it_differs() -> None:
    subject = Subject("a", "c", "float32", "fast", is_compiled=False, placement="cpu")
    assert subject.difference(subject) is None
    other = replace(subject, is_compiled=True)
    assert subject.difference(other) == "compiled True instead of False"
    machine = Machine("p", 2, 2, None, {"torch": "1"})
    assert machine.difference(machine) is None
    assert machine.difference(replace(machine, cores=4)) == "cores 4 instead of 2"
