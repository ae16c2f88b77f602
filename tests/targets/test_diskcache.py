"""A cache entry is whole and as it was built, or it is built again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.errors import LoadError
from outrider.targets.diskcache import (
    cache_directory,
    cached_folder,
    is_intact,
    one_at_a_time,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Builder:
    """Fills an entry with two files, and counts how often it is asked to."""

    def __init__(self, before_done: Callable[[], None] = lambda: None) -> None:
        self.calls = 0
        self._before_done = before_done

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "weights").write_bytes(b"0123456789")
        (folder / "inner").mkdir()
        (folder / "inner" / "config").write_text("{}")
        self._before_done()


def test_an_entry_is_built_once(cache: Path) -> None:
    build = Builder()
    entry = cached_folder("entry", build)
    assert entry == cache / "entry"
    assert cached_folder("entry", build) == entry
    assert build.calls == 1
    assert (entry / "weights").read_bytes() == b"0123456789"


def test_nothing_but_the_entry_is_left_behind(cache: Path) -> None:
    cached_folder("entry", Builder())
    assert [path.name for path in cache.iterdir()] == ["entry"]


def _truncate(entry: Path) -> None:
    (entry / "weights").write_bytes(b"01234")


def _alter(entry: Path) -> None:
    (entry / "weights").write_bytes(b"012345678X")


def _remove_a_file(entry: Path) -> None:
    (entry / "inner" / "config").unlink()


def _add_a_file(entry: Path) -> None:
    (entry / "more").touch()


def _remove_the_manifest(entry: Path) -> None:
    (entry / "outrider-manifest.json").unlink()


def _halve_the_manifest(entry: Path) -> None:
    manifest = entry / "outrider-manifest.json"
    manifest.write_text(manifest.read_text()[:20])


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _alter,
        _remove_a_file,
        _add_a_file,
        _remove_the_manifest,
        _halve_the_manifest,
    ],
)
def test_a_damaged_entry_is_built_again(damage: Callable[[Path], None], cache: Path) -> None:
    build = Builder()
    entry = cached_folder("entry", build)
    damage(entry)
    assert not is_intact(entry)
    assert cached_folder("entry", build) == entry
    assert build.calls == 2
    assert is_intact(entry)
    assert (entry / "weights").read_bytes() == b"0123456789"
    assert [path.name for path in cache.iterdir()] == ["entry"]


def test_a_large_file_is_checked_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.targets.diskcache._DIGEST_LIMIT", 5)
    entry = cached_folder("entry", Builder())
    _alter(entry)
    assert is_intact(entry)
    _truncate(entry)
    assert not is_intact(entry)


def test_a_failed_build_leaves_nothing_and_passes_through(cache: Path) -> None:
    def fail() -> None:
        raise KeyError("half way")

    with pytest.raises(KeyError, match="half way"):
        cached_folder("entry", Builder(fail))
    assert list(cache.iterdir()) == []


def test_what_a_killed_build_left_is_removed_once_it_is_old(cache: Path) -> None:
    old, fresh, other = (cache / name for name in (".entry.aaaa", ".entry.bbbb", ".next.cccc"))
    for folder in (old, fresh, other):
        (folder / "built").mkdir(parents=True)
    for folder in (old, other):
        os.utime(folder, (0, 0))
    cached_folder("entry", Builder())
    assert {path.name for path in cache.iterdir()} == {"entry", ".entry.bbbb", ".next.cccc"}


def test_builders_at_the_same_time_end_with_one_intact_entry(cache: Path) -> None:
    both_building = threading.Barrier(2)
    build = Builder(lambda: void(both_building.wait(timeout=30)))
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(cached_folder("entry", build)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert build.calls == 2
    assert found == [cache / "entry"] * 2
    assert is_intact(cache / "entry")
    assert [path.name for path in cache.iterdir()] == ["entry"]


def void(_: object) -> None:
    """Drop a result."""


def test_an_unusable_cache_folder_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("OUTRIDER_CACHE", str(blocked / "cache"))
    with pytest.raises(LoadError, match=r"cannot write to the cache folder .*OUTRIDER_CACHE"):
        cached_folder("entry", Builder())


def test_the_cache_is_where_the_user_or_the_platform_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_directory() == tmp_path / "cache"
    monkeypatch.delenv("OUTRIDER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "outrider"
    monkeypatch.setenv("XDG_CACHE_HOME", "not" + os.sep + "absolute")
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_directory() == Path.home() / ".cache" / "outrider"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_directory() == Path.home() / "Library" / "Caches" / "outrider"


def test_work_that_shares_files_is_done_by_one_at_a_time() -> None:
    order: list[str] = []
    is_in, may_go = threading.Event(), threading.Event()

    def first() -> None:
        with one_at_a_time("work"):
            is_in.set()
            may_go.wait()
            order.append("first")

    other = threading.Thread(target=first)
    other.start()
    is_in.wait()
    with one_at_a_time("work", on_waiting=may_go.set):
        order.append("second")
    other.join()
    assert order == ["first", "second"]


def test_work_that_raises_lets_the_next_in() -> None:
    with pytest.raises(KeyError), one_at_a_time("work"):
        raise KeyError
    with one_at_a_time("work", on_waiting=lambda: pytest.fail("nobody is at it")):
        pass
