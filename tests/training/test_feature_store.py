"""The store of features: it changes nothing of what is learnt, and is never trusted blindly."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from outrider.errors import OptionError
from outrider.targets.base import NORMED
from outrider.training.base import Batch, Sample, batch_of
from outrider.training.feature_store import FeatureStore
from outrider.training.teacher import Teacher
from support.tiny import shared_model

TARGET = {"target": "tiny"}
LAYERS = (0, 1, NORMED)


def open_store(path: Path, layers: tuple[int, ...] = LAYERS, **changes: Any) -> FeatureStore:
    made_with = TARGET | changes.pop("made_with", {})
    options: dict[str, Any] = {"dtype": torch.float64, "max_bytes": 10**8}
    return FeatureStore(path, made_with, layers, **(options | changes))


def lesson_batch() -> Batch:
    return batch_of([Sample((5, 6, 7, 8, 9), 2), Sample((4, 3, 2), 1)])


def states(tokens: int, layers: int = 3) -> torch.Tensor:
    return torch.randn(layers, tokens, 4, dtype=torch.float64)


def test_a_lecture_from_the_store_has_the_bits_of_the_one_that_was_computed(tmp_path: Path) -> None:
    model, batch = shared_model(), lesson_batch()
    plain = Teacher(model, (0, 1)).teach(batch)
    dtype = plain.normed.dtype
    for _ in range(2):  # first computed and kept, then read
        with open_store(tmp_path / "f", dtype=dtype) as store:
            lecture = Teacher(model, (0, 1), store=store).teach(batch)
            assert len(store) == 2
        for real, found in ((plain.features, lecture.features), (plain.normed, lecture.normed)):
            assert torch.equal(real[batch.real], found[batch.real])


def test_what_is_kept_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = shared_model(), lesson_batch()
    with open_store(tmp_path / "f", dtype=model.dtype) as store:
        Teacher(model, (0, 1), store=store).teach(batch)
        teacher = Teacher(model, (0, 1), store=store)
        monkeypatch.setattr(teacher, "_computed", lambda _: pytest.fail("computed again"))
        teacher.teach(batch)


def test_fewer_layers_are_read_from_what_another_run_kept(tmp_path: Path) -> None:
    kept = states(3)
    with open_store(tmp_path / "f") as store:
        store.write((1, 2, 3), kept)
    with open_store(tmp_path / "f", (NORMED,)) as store:
        found = store.read((1, 2, 3))
        assert found is not None and torch.equal(found, kept[2:])
        store.write((4, 5), states(2, 1))
        assert store.read((4, 5)) is None
    with open_store(tmp_path / "f", (NORMED, 0)) as store:
        found = store.read((1, 2, 3))
        assert found is not None and torch.equal(found, kept[[2, 0]])
    with pytest.raises(OptionError, match=r"of layers 0, 1, -1, not of 7; name another file"):
        open_store(tmp_path / "f", (0, 7))


@pytest.mark.parametrize("lost", [1, 40, 150])
def test_what_a_killed_run_left_of_a_record_is_cut_off(tmp_path: Path, lost: int) -> None:
    path, kept = tmp_path / "f", states(3)
    with open_store(path) as store:
        store.write((1, 2, 3), kept)
        store.write((4, 5), states(2))
    path.write_bytes(path.read_bytes()[:-lost])
    with open_store(path) as store:
        found = store.read((1, 2, 3))
        assert found is not None and torch.equal(found, kept)
        assert store.read((4, 5)) is None
        store.write((4, 5), states(2))
    with open_store(path) as store:
        assert len(store) == 2


def test_a_damaged_record_is_not_read_and_can_be_kept_anew(tmp_path: Path) -> None:
    path, kept = tmp_path / "f", states(2)
    with open_store(path) as store:
        store.write((4, 5), kept)
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    with open_store(path) as store:
        assert store.read((4, 5)) is None
        store.write((4, 5), kept)
        found = store.read((4, 5))
        assert found is not None and torch.equal(found, kept)
    with open_store(path) as store:
        assert store.read((4, 5)) is not None


def test_a_store_is_never_larger_than_asked(tmp_path: Path) -> None:
    with open_store(tmp_path / "f", max_bytes=2000) as store:
        for number in range(50):
            store.write((number,), states(4))
        assert 0 < len(store) < 50
    assert (tmp_path / "f").stat().st_size <= 2000


def test_a_store_of_another_target_or_type_or_another_file_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path / "f").__exit__()
    with pytest.raises(OptionError, match=r"made with target 'tiny', not 'other'"):
        open_store(tmp_path / "f", made_with={"target": "other"})
    with pytest.raises(OptionError, match=r"made with dtype 'torch.float64', not 'torch.bfloat16'"):
        open_store(tmp_path / "f", dtype=torch.bfloat16)
    (tmp_path / "g").write_text("something else\n")
    with pytest.raises(OptionError, match=r"is there already, and holds no features"):
        open_store(tmp_path / "g")
    assert (tmp_path / "g").read_text() == "something else\n"


@pytest.mark.parametrize("has_bias", [False, True])
def test_verdicts_from_the_store_give_the_answers_that_the_whole_vocabulary_gives(
    tmp_path: Path, has_bias: bool
) -> None:
    model, batch = deepcopy(shared_model()), lesson_batch()
    if has_bias:
        weight = model.lm_head.weight
        model.lm_head.bias = torch.nn.Parameter(torch.linspace(-2, 2, len(weight)).to(weight))
    ids = torch.tensor([3, 7, 8, 11, 20])
    plain = Teacher(model, (0, 1), ids)
    normed = plain.teach(batch).normed[batch.real]
    wanted = plain.answers(normed)
    for _ in range(2):  # first found and kept, then read
        with open_store(tmp_path / "f", dtype=normed.dtype) as store:
            teacher = Teacher(model, (0, 1), ids, store)
            lecture = teacher.teach(batch)
            rows = batch.real.flatten().nonzero().flatten()
            found = teacher.answers(normed, lecture.verdicts_at(rows))
        torch.testing.assert_close(found.p, wanted.p)
        assert found.likeliest.equal(wanted.likeliest) and found.is_known.equal(wanted.is_known)


def test_verdicts_that_are_kept_are_not_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = shared_model(), lesson_batch()
    with open_store(tmp_path / "f", dtype=model.dtype) as store:
        Teacher(model, (0, 1), store=store).teach(batch)
    with open_store(tmp_path / "f", dtype=model.dtype) as store:
        teacher = Teacher(model, (0, 1), store=store)
        monkeypatch.setattr(teacher, "verdicts", lambda _: pytest.fail("found again"))
        teacher.teach(batch)
