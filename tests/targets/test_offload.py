"""A model larger than memory says what it says in memory."""

from __future__ import annotations

import gc
import logging
import os
import socket
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
import torch
from accelerate.hooks import (  # type: ignore[import-untyped]
    AlignDevicesHook,
    SequentialHook,
)
from safetensors.torch import load_file

from outrider.drafters.suffix import SuffixDrafter
from outrider.errors import LoadError, OptionError
from outrider.targets import offload
from outrider.targets.loading import LoadedModel, load_model
from outrider.targets.offload import execution_device, is_spread
from outrider.targets.transformers import TransformersTarget
from support.files import save_tiny_model
from support.runs import assert_same, decode, make_request
from support.tiny import random_ids, tiny_model

ON_DISK: dict[str | int, str | int] = {"cpu": 0}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("OUTRIDER_CACHE", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "tiny")


def _load(folder: Path, **options: Any) -> LoadedModel:
    return load_model(str(folder), dtype=torch.float64, **options)


def _as_pickle(folder: Path) -> Path:
    """Store the weights in the older form, from which Accelerate copies what it offloads."""
    stored = folder / "model.safetensors"
    torch.save(load_file(stored), folder / "pytorch_model.bin")
    stored.unlink()
    return folder


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_on_disk_says_what_it_says_in_memory(tied: bool, tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tied", tie_word_embeddings=tied)
    on_disk = _load(folder, device="auto", max_memory=ON_DISK).model
    assert {parameter.device.type for parameter in on_disk.parameters()} == {"meta"}
    targets = [TransformersTarget(m) for m in (on_disk, _load(folder, device="cpu").model)]
    request = make_request(random_ids(10) * 3, max_new_tokens=24, temperature=0.0)
    found, expected = (decode(target, request, max_draft=0) for target in targets)
    assert_same(found, expected)
    drafted = decode(targets[0], request, SuffixDrafter(), max_draft=4)
    assert_same(drafted, expected)
    assert drafted.stats.accepted > 0


def test_a_model_partly_on_disk_says_what_it_says_in_memory(folder: Path) -> None:
    whole = _load(folder, device="cpu").model
    layer: Any = whole.get_submodule("model.layers.0")
    room = 3 * sum(parameter.nbytes for parameter in layer.parameters()) // 2
    spread: Any = _load(folder, device="auto", max_memory={"cpu": room}).model
    assert set(spread.hf_device_map.values()) == {"cpu", "disk"}
    request = make_request(random_ids(10) * 3, max_new_tokens=16, temperature=0.0)
    expected = decode(TransformersTarget(whole), request, max_draft=0)
    found = decode(TransformersTarget(spread), request, SuffixDrafter(), max_draft=4)
    assert_same(found, expected)


def test_what_fits_is_not_offloaded(folder: Path, cache: Path) -> None:
    model = _load(folder, device="auto").model
    assert {parameter.device.type for parameter in model.parameters()} != {"meta"}
    assert not list(cache.glob(".offload*"))


def test_memory_that_the_process_may_not_use_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offload, "available_memory", lambda device: 0)
    model = _load(folder, device="auto").model
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


def test_a_temporary_folder_goes_with_its_model(folder: Path, cache: Path) -> None:
    loaded = _load(_as_pickle(folder), device="auto", max_memory=ON_DISK)
    (kept,) = cache.glob(".offload*")
    assert any(kept.iterdir())
    del loaded
    gc.collect()
    assert not kept.exists()


def test_a_folder_of_the_users_is_used_and_kept(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "new" / "place"
    loaded = _load(_as_pickle(folder), device="auto", max_memory=ON_DISK, offload_folder=str(place))
    assert any(place.iterdir())
    del loaded
    gc.collect()
    assert any(place.iterdir())


def test_what_killed_processes_left_is_removed(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "a-host")
    monkeypatch.setattr(psutil, "pid_exists", lambda pid: pid == os.getpid())
    ours = cache / f".offload-a-host-{os.getpid()}-123456"
    dead = cache / ".offload-a-host-999-123456"
    elsewhere = cache / ".offload-other-host-999-123456"
    for left in (ours, dead, elsewhere):
        left.mkdir(parents=True)
    _load(folder, device="auto")
    assert ours.exists() and elsewhere.exists() and not dead.exists()


def test_offloading_is_silent(
    folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    chatter = logging.getLogger("accelerate.big_modeling")
    before = chatter.level
    _load(folder, device="auto", max_memory=ON_DISK)
    assert chatter.level == before
    assert (caplog.text, capfd.readouterr()) == ("", ("", ""))


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"disk": 0}, "max_memory names 'disk'; it must be 'cpu' or the number of one of"),
        ({99: "1GiB"}, "max_memory names 99; it must be 'cpu' or"),
        ({"cpu": "lots"}, "max_memory of 'cpu' is 'lots'; it must be bytes, or text like '10GiB'"),
        ({"cpu": -1}, "max_memory of 'cpu' is -1; it must be bytes"),
        ({"cpu": True}, "max_memory of 'cpu' is True; it must be bytes"),
        ({"cpu": None}, "max_memory of 'cpu' is None; it must be bytes"),
    ],
)
def test_limits_that_mean_nothing_are_refused(
    limits: dict[Any, Any], problem: str, folder: Path
) -> None:
    with pytest.raises(OptionError) as caught:
        _load(folder, device="auto", max_memory=limits)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("option", [{"max_memory": ON_DISK}, {"offload_folder": "somewhere"}])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_offload_options_need_a_device_that_is_auto(
    device: str | None, option: dict[str, Any], folder: Path
) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(option))} is .*, which needs device='auto'"):
        _load(folder, device=device, **option)


def test_a_folder_that_cannot_be_made_is_one_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LoadError, match=r"cannot offload to .*give another offload_folder"):
        _load(folder, device="auto", offload_folder=str(tmp_path / "file" / "below"))


def test_int8_weights_are_not_spread(folder: Path) -> None:
    with pytest.raises(OptionError, match=r"device is 'auto', but .*@int8 stands on one device"):
        load_model(f"{folder}@int8", device="auto")


def test_a_loaded_model_stays_where_it_is(folder: Path) -> None:
    on_disk = _load(folder, device="auto", max_memory=ON_DISK).model
    assert load_model(on_disk, device="cpu").model is on_disk
    with pytest.raises(OptionError, match=r"device is 'auto', but .* already loaded on cpu"):
        load_model(on_disk, device="auto")


def test_the_execution_device_is_where_the_first_layer_computes(folder: Path) -> None:
    plain = tiny_model()
    assert (execution_device(plain), is_spread(plain)) == (torch.device("cpu"), False)
    on_disk = _load(folder, device="auto", max_memory=ON_DISK).model
    assert (execution_device(on_disk), is_spread(on_disk)) == (torch.device("cpu"), True)
    # What matters is where weights are brought to, not where they are.
    elsewhere: torch.nn.Module = tiny_model()
    moved: Any = elsewhere.to("meta")
    hooks = (AlignDevicesHook(), AlignDevicesHook(execution_device="cpu"))
    moved.model.embed_tokens._hf_hook = SequentialHook(*hooks)
    assert execution_device(moved) == torch.device("cpu")
    assert is_spread(moved)
