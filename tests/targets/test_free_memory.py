"""What is free is what the process may still take, limits of its control groups included."""

from __future__ import annotations

from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import torch

from outrider.targets import free_memory
from outrider.targets.free_memory import available_memory, cgroup_available


def _group(folder: Path, limit: str, usage: int, inactive: int, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = {2: ("memory.max", "memory.current", "inactive_file")}
    old = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    limit_file, usage_file, field = names.get(version, old)
    (folder / limit_file).write_text(f"{limit}\n")
    (folder / usage_file).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{field} {inactive}\nother 7\n")


def test_a_limit_leaves_what_is_not_used_and_what_can_be_dropped(tmp_path: Path) -> None:
    _group(tmp_path / "app", "1000", 700, 50)
    assert cgroup_available(tmp_path, "0::/app\n") == 350


def test_the_tightest_group_above_decides(tmp_path: Path) -> None:
    _group(tmp_path / "slice", "600", 500, 0)
    _group(tmp_path / "slice" / "app", "1000", 100, 0)
    assert cgroup_available(tmp_path, "0::/slice/app") == 100
    _group(tmp_path / "slice" / "app", "150", 100, 0)
    assert cgroup_available(tmp_path, "0::/slice/app") == 50


def test_in_a_container_the_group_is_the_one_that_is_mounted(tmp_path: Path) -> None:
    _group(tmp_path, "1000", 900, 0)
    assert cgroup_available(tmp_path, "0::/") == 100
    assert cgroup_available(tmp_path, "0::/somewhere/on/the/host") == 100


def test_the_first_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    _group(tmp_path / "memory" / "app", "1000", 400, 10, version=1)
    memberships = "5:cpu:/app\n4:memory:/app\n0::/\n"
    assert cgroup_available(tmp_path, memberships) == 610


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    _group(tmp_path / "app", "max", 400, 10)
    assert cgroup_available(tmp_path, "0::/app") is None
    assert cgroup_available(tmp_path, "3:cpu:/app") is None
    assert cgroup_available(tmp_path / "missing", "0::/app") is None


def test_more_use_than_the_limit_leaves_nothing(tmp_path: Path) -> None:
    _group(tmp_path / "app", "1000", 1200, 0)
    assert cgroup_available(tmp_path, "0::/app") == 0


def test_a_limit_below_what_the_system_has_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memberships = tmp_path / "cgroup"
    monkeypatch.setattr(free_memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(free_memory, "_MEMBERSHIPS", memberships)
    total = psutil.virtual_memory().total
    assert 0 < available_memory(torch.device("cpu")) <= total  # no such file, as outside Linux
    memberships.write_text("0::/app\n")
    _group(tmp_path / "app", "4096", 0, 0)
    assert available_memory(torch.device("cpu")) == 4096
    _group(tmp_path / "app", str(2**60), 0, 0)
    assert available_memory(torch.device("cpu")) <= total
